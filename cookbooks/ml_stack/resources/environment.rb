# frozen_string_literal: true

provides :ml_stack_environment
unified_mode true

description 'A conda environment that is never half of anything: each content is built into a folder of its ' \
  'own, tried, and put in use by moving one link. Programs from a former build continue.'

property :python, String,
  required: [:create],
  description: "Python's version, from conda: `3.12`"

property :requirements, Array,
  default: [],
  description: 'What pip installs, as in a requirements file'

property :indexes, Array,
  default: [],
  description: 'Where pip looks: the index, then further ones; PyPI where there is none'

property :channels, Array,
  default: ['conda-forge'],
  description: "Conda's channels"

property :imports, Array,
  default: [],
  description: 'Modules that must import before a build is put in use'

property :conda, String,
  default: '/opt/conda',
  description: 'Where conda is; its `envs/NAME` becomes the link'

property :builds, String,
  default: '/opt/ml_stack',
  description: 'Where builds are, a folder each'

property :keep, Integer,
  default: 1,
  description: 'Former builds that are kept'

action :create, description: 'Build what is new, and put it in use once it works.' do
  builds = all_builds
  content = Causeway::Builds.file(
    new_resource.name, new_resource.channels, new_resource.python, new_resource.requirements,
    new_resource.indexes
  )
  prefix = builds.prefix(content)

  [new_resource.builds, ::File.dirname(builds.link)].each do |folder|
    directory folder do
      mode '0755'
      recursive true
    end
  end

  directory "#{prefix}, cut off" do
    path prefix
    recursive true
    action :delete
    only_if { builds.cut_off?(prefix) }
  end

  file "#{prefix}.yml" do
    content content
    mode '0644'
  end

  execute "build #{prefix}" do
    command [conda, 'env', 'create', '--yes', '--quiet', '--prefix', prefix, '--file', "#{prefix}.yml"]
    environment 'HOME' => '/root', 'CONDA_PKGS_DIRS' => packages, 'PIP_NO_CACHE_DIR' => '1', 'PIP_NO_INPUT' => '1',
      'PYTHONNOUSERSITE' => '1'
    umask '022'
    timeout 7200
    not_if { builds.complete?(prefix) }
  end

  execute "try #{prefix}" do
    command ["#{prefix}/bin/python", '-c', new_resource.imports.map { |each| "import #{each}" }.join("\n")]
    # As on a machine without GPUs, and without its owner's files.
    environment 'HOME' => '/nonexistent', 'CUDA_VISIBLE_DEVICES' => '', 'PYTHONNOUSERSITE' => '1'
    timeout 600
    not_if { builds.complete?(prefix) }
  end

  file "#{prefix}/#{Causeway::Builds::COMPLETE}" do
    mode '0644'
  end

  # Downloads: what a build needs of them is linked into it.
  directory packages do
    recursive true
    action :delete
  end

  if ::File.directory?(builds.link) && !::File.symlink?(builds.link)
    raise "#{builds.link} is an environment that somebody made there: move it away, and Chef puts its link there"
  end

  link "#{builds.link}.next" do
    to prefix
    not_if { builds.current == prefix }
  end

  execute "put #{prefix} in use" do
    command ['mv', '--no-target-directory', "#{builds.link}.next", builds.link]
    not_if { builds.current == prefix }
  end

  builds.superfluous(new_resource.keep).each do |former|
    file "#{former}.yml" do
      action :delete
      backup false
    end

    directory former do
      recursive true
      action :delete
    end
  end
end

action :remove, description: 'Remove it, with all its builds.' do
  link all_builds.link do
    action :delete
  end

  all_builds.superfluous(0).each do |former|
    file "#{former}.yml" do
      action :delete
      backup false
    end

    directory former do
      recursive true
      action :delete
    end
  end
end

action_class do
  # On the same file system as the builds, for hard links.
  def packages
    "#{new_resource.builds}/.packages"
  end

  def conda
    "#{new_resource.conda}/bin/conda"
  end

  def all_builds
    Causeway::Builds.new(
      new_resource.builds, new_resource.name, "#{new_resource.conda}/envs/#{new_resource.name}"
    )
  end
end

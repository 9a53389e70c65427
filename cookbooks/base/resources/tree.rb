# frozen_string_literal: true

provides :base_tree
unified_mode true

description 'A tree of files, laid out like `/`, brought onto the machine. What an earlier tree of ' \
            'that name brought and this one no longer has is taken away. `invoke vpn.push` brings the same ' \
            'trees, and both keep one list.'

property :source, String,
  required: true,
  description: 'The folder that is laid out like `/`'

property :reload, Array,
  default: [],
  description: 'The command, word by word, that has daemons take up what changed. It is owed until it has ' \
    'run well once, if need be in a later run; while this is empty, it stays owed'

action :install, description: 'Replace what differs, take away what is gone, reload.' do
  tree = Causeway::Tree.new(new_resource.source, list)

  directory kept do
    mode '0700'
    recursive true
  end

  file "#{list} before" do
    path list
    content lazy { tree.listing_before }
    mode '0600'
    backup false
    not_if { tree.brought.sort == tree.listing.lines(chomp: true) }
  end

  # A run that is cut off between a change and the reload leaves it owed.
  file owed do
    mode '0600'
    only_if { tree.differs? }
  end

  tree.paths.each do |each|
    directory ::File.dirname(each) do
      recursive true
    end

    file each do
      content tree.content(each)
      mode tree.mode(each)
      sensitive tree.secret?(each)
      backup false
      not_if { tree.outdated?(each) }
    end
  end

  tree.gone.each do |each|
    file each do
      backup false
      action :delete
    end
  end

  file list do
    content lazy { tree.listing }
    mode '0600'
    backup false
  end

  execute "reload #{new_resource.name}" do
    command lazy { new_resource.reload }
    only_if { ::File.exist?(owed) && !new_resource.reload.empty? }
  end

  file "#{owed} no more" do
    path owed
    backup false
    action :delete
    not_if { new_resource.reload.empty? }
  end
end

action_class do
  def kept
    Causeway::Tree.kept(new_resource.name)
  end

  def list
    "#{kept}/files"
  end

  def owed
    "#{kept}/reload-owed"
  end
end

#!/usr/bin/env ruby
# frozen_string_literal: true

# A stand-in for chef-client that runs the recipes and resources of the cookbook `kubernetes` as they are.
#
# It knows as much of Chef's language as that cookbook uses, runs a resource where it stands (as `unified_mode` does),
# and keeps delayed notifications for the end. What needs Debian's archive or systemd as the first process is left out:
# of packages there are those of the kubelet, kubeadm and kubectl, each a file that names the version, and timers do not
# run.

require 'English'
require 'erb'
require 'fileutils'
require 'json'
require 'net/http'
require 'open3'
require 'time'

Encoding.default_external = Encoding::UTF_8

ROOT = '/var/lib/causeway'
REPOSITORY = "#{ROOT}/chef"
COOKBOOKS = "#{REPOSITORY}/cookbooks"
PACKAGES = '/etc/lab-installed'

if ARGV.include?('--version')
  puts 'Chef Infra Client: 18.0.0'
  exit
end

module Mixlib
  class ShellOut
    attr_reader :stdout, :stderr, :exitstatus

    def initialize(*command, input: nil, environment: {}, **)
      @command = command.flatten
      @input = input
      @environment = environment
    end

    def run_command
      @stdout, @stderr, status = Open3.capture3(@environment, *@command, stdin_data: @input.to_s)
      @exitstatus = status.exitstatus
      self
    end

    def error?
      @exitstatus != 0
    end

    def error!
      raise "#{@command.join(' ')}: exit code #{@exitstatus}\n#{@stdout}#{@stderr}" if error?

      self
    end
  end
end

def deep_merge(below, above)
  below.merge(above) { |_, old, new| old.is_a?(Hash) && new.is_a?(Hash) ? deep_merge(old, new) : new }
end

# Attributes: nested hashes that spring into being when they are read, as `default['a']['b'] = 1` wants it.
class Defaults
  attr_reader :default, :override

  def initialize
    tree = -> { Hash.new { |hash, key| hash[key.to_s] = tree.call } }
    @default = tree.call
    @override = tree.call
  end

  def node
    Hash.new { |_, _| {} }
  end

  def method_missing(name, *)
    name.end_with?('?') ? false : super
  end

  def respond_to_missing?(name, *)
    name.end_with?('?')
  end
end

class Node < Hash
  def read(*path)
    path.reduce(self) { |found, key| found.is_a?(Hash) ? found[key] : nil }
  end
end

def plain(value)
  value.is_a?(Hash) ? value.to_h { |key, each| [key, plain(each)] } : value
end

def load_node(name)
  defaults = Defaults.new
  file = "#{COOKBOOKS}/kubernetes/attributes/default.rb"
  defaults.instance_eval(File.read(file), file)
  object = JSON.parse(File.read("#{REPOSITORY}/nodes/#{name}.json"))
  environment = JSON.parse(File.read("#{REPOSITORY}/environments/#{object['chef_environment']}.json"))
  memory = File.read('/proc/meminfo')[/^MemTotal:\s+(\d+)/, 1]
  found = {
    'hostname' => name, 'platform' => 'ubuntu', 'platform_family' => 'debian', 'platform_version' => '24.04',
    'kernel' => { 'machine' => 'x86_64' }, 'cpu' => { 'total' => 2 }, 'memory' => { 'total' => "#{memory}kB" },
  }
  levels = [plain(defaults.default), environment['default_attributes']]
  run_list = expand(object['run_list'], levels)
  levels += [object['normal'], found]
  [Node.new.merge!(levels.reduce { |below, above| deep_merge(below, above) }), run_list]
end

def expand(run_list, levels)
  run_list.flat_map do |item|
    name = item[/\Arole\[(.*)\]\z/, 1]
    next [item] unless name

    role = JSON.parse(File.read("#{REPOSITORY}/roles/#{name}.json"))
    levels << role['default_attributes']
    expand(role['run_list'], levels)
  end
end

# What a run does and has done.
class Run
  attr_reader :node, :updated
  attr_accessor :total

  def initialize(node)
    @node = node
    @updated = []
    @total = 0
    @named = {}
    @delayed = []
  end

  def enter(resource)
    @named[resource.to_s] = resource
  end

  def notify(action, target, timing)
    return @named[target].act(action) if timing == :immediately && @named.key?(target)

    @delayed << [action, target] unless @delayed.include?([action, target])
  end

  def finish
    @delayed.shift.then { |action, target| @named.fetch(target).act(action) } until @delayed.empty?
  end
end

# The language of recipes and of actions.
module Language
  def node
    run.node
  end

  def lazy(&block)
    block
  end

  def shell_out!(*command, **options)
    Mixlib::ShellOut.new(*command, **options).run_command.error!
  end

  def platform_family?(*names)
    names.include?('debian')
  end

  def method_missing(kind, name = nil, &block)
    found = KINDS[kind] or return super
    resource = found.new(run, kind, name, cookbook, self)
    resource.instance_exec(&block) if block
    run.enter(resource)
    run.total += 1
    Array(resource.asked || resource.usual).each { |action| resource.act(action) }
    resource
  end

  def respond_to_missing?(kind, *)
    KINDS.key?(kind)
  end
end

class Recipe
  include Language
  attr_reader :run, :cookbook

  def initialize(run, cookbook)
    @run = run
    @cookbook = cookbook
  end

  def helper?(_name)
    false
  end

  def include_recipe(name)
    @@seen ||= []
    return if @@seen.include?(name)

    @@seen << name
    cookbook, recipe = name.split('::')
    file = "#{COOKBOOKS}/#{cookbook}/recipes/#{recipe || 'default'}.rb"
    # A recipe ends by `return`: so it is a method.
    target = Recipe.new(run, cookbook)
    target.define_singleton_method(:converge) {}
    target.singleton_class.class_eval("def converge\n#{File.read(file)}\nend", file, 0)
    target.converge
  end
end

# A resource; its properties are whatever is said of it.
class Resource
  attr_reader :run, :cookbook, :name, :asked

  def initialize(run, kind, name, cookbook, parent)
    @run = run
    @parent = parent
    @kind = kind
    @name = name
    @cookbook = cookbook
    @said = {}
    @guards = []
    @notifications = []
  end

  def to_s
    "#{@kind}[#{name}]"
  end

  def node
    run.node
  end

  def lazy(&block)
    block
  end

  def action(value = nil)
    value ? @asked = value : @asked
  end

  def only_if(command = nil, &block)
    @guards << [true, command || block]
  end

  def not_if(command = nil, &block)
    @guards << [false, command || block]
  end

  def notifies(action, target, timing = :delayed)
    @notifications << [action, target, timing]
  end

  # Turned round: whoever notifies has run by then, or has not changed.
  def subscribes(*); end

  def get(name, default = nil)
    value = @said.fetch(name, default)
    value.is_a?(Proc) ? value.call : value
  end

  # Within an action, also what its helpers answer.
  def method_missing(property, *values)
    return @parent.send(property, *values) if @parent.helper?(property)
    raise NoMethodError, "#{self}: #{property}" if values.empty?

    @said[property] = values.first
  end

  def respond_to_missing?(property, *)
    @parent.helper?(property)
  end

  def act(action)
    return if action == :nothing
    return unless @guards.all? { |wanted, guard| (guard.is_a?(Proc) ? !!guard.call : system(guard)) == wanted }

    shown = "#{self} action #{action}"
    changed = perform(action)
    puts "  * #{shown}#{' (up to date)' unless changed}"
    $stdout.flush
    return unless changed

    run.updated << to_s unless run.updated.include?(to_s)
    @notifications.each { |each| run.notify(*each) }
  end

  def usual
    :create
  end

  def write(path, text, mode)
    mode = mode.to_s.empty? ? 0o644 : Integer(mode.to_s, 8)
    same = File.file?(path) && File.binread(path) == text.b && (File.stat(path).mode & 0o7777) == mode
    return false if same

    File.open("#{path}.chef", 'wb', mode) { |file| file.write(text) }
    File.chmod(mode, "#{path}.chef")
    check("#{path}.chef")
    File.rename("#{path}.chef", path)
    true
  end

  def check(path)
    verify = get(:verify)
    return unless verify.is_a?(String)

    said, status = Open3.capture2e(verify.gsub('%{path}', path))
    raise "#{self}: #{verify} failed:\n#{said}" unless status.success?
  end
end

# A package of the lab's: a file with its version.
class Package < Resource
  def usual
    :install
  end

  def perform(action)
    package = get(:package_name, name)
    return false unless KUBERNETES.include?(package)
    return false if action == :lock || (action == :install && Causeway::Packages.installed(package))
    return false unless Causeway::Packages.outdated?(package)

    FileUtils.mkdir_p(PACKAGES)
    File.write("#{PACKAGES}/#{package}", Causeway::Packages.candidate(package))
    true
  end
end

class LeftOut < Resource
  def perform(_action)
    false
  end
end

class FileResource < Resource
  def path
    get(:path, name)
  end

  def text
    get(:content)
  end

  def perform(action)
    return File.exist?(path) && FileUtils.rm(path) && true if action == :delete
    return false if action == :create_if_missing && File.exist?(path)

    write(path, text.to_s, get(:mode))
  end
end

class CookbookFile < FileResource
  def text
    File.binread("#{COOKBOOKS}/#{cookbook}/files/#{get(:source)}")
  end
end

class RemoteFile < FileResource
  def text
    File.binread(get(:source).delete_prefix('file://'))
  end
end

class Template < FileResource
  def text
    context = Object.new
    get(:variables, {}).each { |key, value| context.instance_variable_set("@#{key}", value) }
    source = File.read("#{COOKBOOKS}/#{cookbook}/templates/#{get(:source)}")
    context.instance_eval(ERB.new(source, trim_mode: '-').src)
  end
end

class Directory < Resource
  def perform(action)
    return File.directory?(name) && FileUtils.rm_rf(name) && true if action == :delete

    mode = Integer(get(:mode, '0755'), 8)
    return false if File.directory?(name) && (File.stat(name).mode & 0o7777) == mode

    get(:recursive) ? FileUtils.mkdir_p(name) : (Dir.mkdir(name) unless File.directory?(name))
    File.chmod(mode, name)
    File.chown(get(:owner), get(:group), name)
    true
  end
end

class RemoteDirectory < Resource
  def perform(_action)
    source = "#{COOKBOOKS}/#{cookbook}/files/#{get(:source)}"
    FileUtils.mkdir_p(name)
    return false if system('diff', '-rq', '-x', '__pycache__', source, name, out: File::NULL)

    FileUtils.cp_r("#{source}/.", name)
    true
  end
end

class Link < Resource
  def perform(_action)
    return false if File.symlink?(name) && File.readlink(name) == get(:to)

    FileUtils.ln_sf(get(:to), name)
    true
  end
end

class Execute < Resource
  def usual
    :run
  end

  def perform(_action)
    command = Array(get(:command, name)).map(&:to_s)
    said, status = Open3.capture2e(*command)
    return true if Array(get(:returns, 0)).include?(status.exitstatus)

    # As Mixlib::ShellOut says it.
    raise "Expected process to exit with [0], but received '#{status.exitstatus}'\n" \
      "---- Begin output of #{command.join(' ')} ----\nSTDOUT: #{said}\nSTDERR: \n" \
      "---- End output of #{command.join(' ')} ----\nRan #{command.join(' ')} returned #{status.exitstatus}"
  end
end

class Log < Resource
  def usual
    :write
  end

  def perform(_action)
    puts "#{get(:level, :info).to_s.upcase}: #{get(:message, name)}"
    false
  end
end

class HttpRequest < Resource
  def usual
    :get
  end

  def perform(_action)
    tries ||= get(:retries, 0)
    answer = Net::HTTP.get_response(URI(get(:url)))
    raise "#{self}: #{answer.code}" unless answer.code == '200'

    true
  rescue SystemCallError, RuntimeError
    raise if (tries -= 1).negative?

    sleep get(:retry_delay, 2)
    retry
  end
end

# By the lab's systemctl, which runs services and no timers.
class Service < Resource
  def usual
    :nothing
  end

  def unit
    get(:unit_name, name)
  end

  def perform(action)
    return false if unit.end_with?('.timer')

    action = :restart if action == :reload
    return false unless %i(start restart stop).include?(action)
    return false if action == :start && system('systemctl', 'is-active', '--quiet', unit)

    system('systemctl', action.to_s, unit) || raise("#{self}: #{action} failed")
    true
  end
end

class Unit < Service
  def perform(action)
    path = "/etc/systemd/system/#{unit}"
    case action
    when :create then write(path, text, '0644')
    when :delete then File.exist?(path) && FileUtils.rm(path) && true
    else super
    end
  end

  def text
    content = get(:content)
    return content if content.is_a?(String)

    content.map { |section, rows| "[#{section}]\n#{rows.map { |key, value| "#{key}=#{value}\n" }.join}" }.join("\n")
  end
end

# A resource of a cookbook's own: resources/<name>.rb.
class Custom < Resource
  class << self
    attr_reader :properties, :actions, :helpers

    def read(file)
      @properties = {}
      @actions = {}
      @helpers = Module.new
      class_eval(File.read(file), file)
      self
    end

    def property(name, _type = nil, **about)
      @properties[name] = about
    end

    def action(name, **, &block)
      @actions[name] = block
    end

    def action_class(&block)
      @helpers.class_eval(&block)
    end

    def provides(*); end

    def unified_mode(*); end

    def description(*); end
  end

  def initialize(*)
    super
    self.class.properties.each do |key, about|
      define_singleton_method(key) do |value = nil|
        return @said[key] = about[:coerce] ? about[:coerce].call(value) : value unless value.nil?

        @said.fetch(key) { about[:name_property] ? @name : about[:default] }
      end
    end
  end

  def usual
    self.class.actions.keys.first
  end

  def perform(action)
    lacking = self.class.properties.select { |key, about| about[:required] && send(key).nil? }.keys
    raise "#{self}: #{lacking.join(', ')} missing" unless lacking.empty?

    before = run.updated.size
    context = ActionContext.new(run, cookbook, self)
    context.define_singleton_method(:converge, &self.class.actions.fetch(action))
    context.converge
    run.updated.size > before || context.converged
  end
end

class ActionContext
  include Language
  attr_reader :run, :cookbook, :new_resource, :converged

  def initialize(run, cookbook, resource)
    @run = run
    @cookbook = cookbook
    @new_resource = resource
    @converged = false
    extend(resource.class.helpers)
  end

  def helper?(name)
    name == :new_resource || @new_resource.class.helpers.method_defined?(name)
  end

  def converge_by(words)
    puts "    - #{words}"
    yield
    @converged = true
  end
end

KINDS = {
  file: FileResource, cookbook_file: CookbookFile, remote_file: RemoteFile, template: Template,
  directory: Directory, remote_directory: RemoteDirectory, link: Link, execute: Execute, log: Log,
  http_request: HttpRequest, service: Service, systemd_unit: Unit, package: LeftOut, apt_package: Package,
  base_apt_source: LeftOut,
}.freeze.dup

def report(name, run, failure)
  told = {
    'ended' => Time.now.utc.iso8601, 'success' => failure.nil?, 'why_run' => false, 'updated' => run.updated,
    'total' => run.total, 'exception' => failure && "#{failure.class}: #{failure.message}", 'chef' => '18.0.0',
    'cookbooks' => { 'kubernetes' => '0.1.0' }, 'inputs' => File.read("#{REPOSITORY}/inputs").strip,
  }
  File.write("#{ROOT}/report.json", JSON.generate(told))
  warn "ERROR: #{name}: #{failure.class}: #{failure.message}", failure.backtrace.first(6) if failure
end

Dir["#{COOKBOOKS}/kubernetes/libraries/*.rb"].sort.each { |file| require file }
KUBERNETES = %w(kubeadm kubectl kubelet).freeze
module Causeway
  # What dpkg and APT would say, with one release of each minor in the archive.
  module Packages
    module_function

    def installed(name)
      file = "#{PACKAGES}/#{name}"
      File.read(file) if File.exist?(file)
    end

    def candidate(_name)
      "#{$lab['kubernetes']['version']}.2-1.1"
    end
  end
end
Dir["#{COOKBOOKS}/kubernetes/resources/*.rb"].sort.each do |file|
  KINDS[:"kubernetes_#{File.basename(file, '.rb')}"] = Class.new(Custom).read(file)
end

name = ARGV[ARGV.index('--node-name') + 1]
node, run_list = load_node(name)
$lab = node
run_list = [ARGV[ARGV.index('--override-runlist') + 1]] if ARGV.include?('--override-runlist')
run = Run.new(node)
begin
  recipes = run_list.map { |item| item[/\Arecipe\[(.*)\]\z/, 1] }
  recipes.select { |each| each.start_with?('kubernetes::') }.each do |each|
    Recipe.new(run, 'kubernetes').include_recipe(each)
  end
  run.finish
rescue StandardError => e
  report(name, run, e)
  exit 1
end
report(name, run, nil)

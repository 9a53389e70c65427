# frozen_string_literal: true

# Renders one ERB template of a cookbook as Chef does, without Chef. Takes JSON on standard input:
#   {"cookbooks": folder, "cookbook": name, "template": file below templates/, "node": {...},
#    "variables": {...}}
# `node` has the defaults of the cookbook and of `base` below what is given. Prints the text.

require 'json'

# Chef renders with Erubis. ERB agrees with it where statements end in `-%>`, as all of ours do.
begin
  require 'erubis'
  ENGINE = ->(text) { Erubis::Eruby.new(text).src }
rescue LoadError
  require 'erb'
  ENGINE = ->(text) { ERB.new(text, trim_mode: '-').src }
end

# Attributes: nested hashes that spring into being when they are read, as `default['a']['b'] = 1` wants it.
def attributes
  Hash.new { |hash, key| hash[key.to_s] = attributes }
end

# Runs attributes/default.rb of cookbooks.
class Defaults
  attr_reader :default, :override

  def initialize(given)
    @default = attributes
    @override = attributes
    @given = given
  end

  # As the files so far have it.
  def node
    Node.new(merge(merge(plain(@default), @given), plain(@override)))
  end

  def platform_family?(*names)
    names.include?('debian')
  end

  def method_missing(name, *arguments) # `ubuntu?` and the like, of ChefUtils
    return @given['platform'] == name.to_s.chomp('?') if name.end_with?('?') && arguments.empty?

    super
  end

  def respond_to_missing?(name, *)
    name.end_with?('?') || super
  end

  def read(file)
    instance_eval(File.read(file), file) if File.exist?(file)
  end
end

def merge(below, above)
  below.merge(above) do |_, old, new|
    old.is_a?(Hash) && new.is_a?(Hash) ? merge(old, new) : new
  end
end

# Plain hashes: an attribute that is not there is nil, as in Chef.
def plain(value)
  case value
  when Hash then value.to_h { |key, each| [key.to_s, plain(each)] }.tap { |hash| hash.default = nil }
  when Array then value.map { |each| plain(each) }
  else value
  end
end

# Chef's node, as far as templates go: attributes, and `node.name`.
class Node
  def initialize(attributes)
    @attributes = attributes
  end

  def [](key)
    @attributes[key.to_s]
  end

  def read(*path)
    @attributes.dig(*path)
  end

  def dig(*path)
    @attributes.dig(*path)
  end

  def name
    @attributes.dig('causeway', 'name')
  end
end

# What a template sees: `node`, `@variables`, the libraries' methods, partials.
class Context
  attr_reader :node

  def initialize(folder, node, variables)
    @folder = folder
    @node = node
    variables.each { |name, value| instance_variable_set("@#{name}", value) }
  end

  def render(template, options = {})
    context = dup
    options.fetch(:variables, {}).each { |name, value| context.instance_variable_set("@#{name}", value) }
    context.text_of(template)
  end

  def text_of(template)
    file = "#{@folder}/#{template}"
    instance_eval(ENGINE.call(File.read(file)), file)
  end
end

asked = JSON.parse($stdin.read)
folder = "#{asked['cookbooks']}/#{asked['cookbook']}"
platform = { 'platform' => 'ubuntu', 'platform_family' => 'debian', 'platform_version' => '24.04' }
given = platform.merge(asked['node'])
defaults = Defaults.new(given)
['base', asked['cookbook']].uniq.each do |name|
  defaults.read("#{asked['cookbooks']}/#{name}/attributes/default.rb")
end
context = Context.new("#{folder}/templates", defaults.node, asked['variables'])
$stdout.write(context.text_of(asked['template']))

# frozen_string_literal: true

require 'digest'
require 'yaml'

module Causeway
  # Builds of an environment: one folder for each content, `NAME-HASH`, and a link to the one in use.
  class Builds
    # Written last of all: a build without it was cut off.
    COMPLETE = '.complete'

    attr_reader :root, :name, :link

    def initialize(root, name, link)
      @root = root
      @name = name
      @link = link
    end

    # The environment's file as conda reads it.
    def self.file(name, channels, python, requirements, indexes)
      options = indexes.map.with_index { |url, at| "#{at.zero? ? '--index-url' : '--extra-index-url'} #{url}" }
      YAML.dump(
        'name' => name,
        'channels' => channels,
        'dependencies' => ["python=#{python}", 'pip', { 'pip' => options + requirements }]
      )
    end

    # Where a content is built.
    def prefix(content)
      "#{root}/#{name}-#{Digest::SHA256.hexdigest(content)[0, 12]}"
    end

    def complete?(prefix)
      ::File.exist?("#{prefix}/#{COMPLETE}")
    end

    def cut_off?(prefix)
      ::File.exist?(prefix) && !complete?(prefix)
    end

    # The build in use; nil before the first.
    def current
      ::File.readlink(link) if ::File.symlink?(link)
    end

    # Former builds beyond the newest `keep`, and those that were cut off.
    def superfluous(keep)
      former = Dir.glob("#{root}/#{name}-*").select { |path| ::File.directory?(path) && ours?(path) } - [current]
      whole, broken = former.partition { |path| complete?(path) }
      broken + whole.sort_by { |path| ::File.mtime("#{path}/#{COMPLETE}") }.reverse.drop(keep)
    end

    private

    # `ml-2` is another environment's name, not a build of `ml`.
    def ours?(path)
      ::File.basename(path).delete_prefix("#{name}-").match?(/\A\h{12}\z/)
    end
  end
end

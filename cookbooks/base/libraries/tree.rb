# frozen_string_literal: true

require 'find'
require 'json'
require 'openssl'

module Causeway
  # A tree of files laid out like `/`, and the list of what earlier ones brought to this machine. The list is
  # the one that `invoke vpn.push` keeps (templates/ship/receive.sh): each takes away what the other brought.
  class Tree
    # Readable for other users than root, although they are among secrets.
    PUBLIC = %w(*.crt crl.pem).freeze
    # Known by name, whatever mode the files came here with.
    SECRET = %w(*.key *-keys.conf */private/* */secrets/*).freeze

    # Files of which an older one is never brought, and what tells how old one is.
    AGES = {
      'crl.pem' => ->(text) { OpenSSL::X509::CRL.new(text).last_update },
      'peers.json' => ->(text) { Integer(JSON.parse(text).to_h.fetch('revision')) },
    }.freeze

    # Where receive.sh keeps what it knows of a tree, readable by root alone.
    def self.kept(name)
      "/var/lib/causeway/#{name}"
    end

    # Whether a tree of that name was ever brought here.
    def self.here?(name)
      ::File.exist?("#{kept(name)}/files")
    end

    attr_reader :source

    def initialize(source, list)
      @source = source.chomp('/')
      @list = list
    end

    # Path on the machine, sorted. Links and empty folders are not part of a tree.
    def paths
      @paths ||= begin
        files = Find.find(@source).select { |each| ::File.file?(each) && !::File.symlink?(each) }
        files.map { |each| each.delete_prefix(@source) }.sort
      end
    end

    def content(path)
      ::File.binread("#{@source}#{path}")
    end

    def mode(path)
      return '0600' if secret?(path)

      content(path).start_with?('#!') ? '0755' : '0644'
    end

    # Of files that others may not read here, others may not read there.
    def secret?(path)
      return false if among?(PUBLIC, path)

      among?(SECRET, path) || (stands_here?(path) && (::File.stat("#{@source}#{path}").mode & 0o077).zero?)
    end

    # A list of revoked certificates, or of WireGuard's devices, that is older than the machine's own would admit
    # users who were revoked in between, by `invoke vpn.revoke` on another computer.
    def outdated?(path)
      return false unless AGES.key?(::File.basename(path)) && ::File.exist?(path)

      age = AGES[::File.basename(path)]
      age.call(::File.read(path)) > age.call(content(path))
    rescue OpenSSL::X509::CRLError, JSON::ParserError, KeyError, TypeError
      false
    end

    # What the list has; nothing before the first tree.
    def brought
      ::File.exist?(@list) ? ::File.readlines(@list, chomp: true).reject(&:empty?) : []
    end

    # To be taken away. A tree that comes without any secrets was brought by somebody who has none, and says
    # nothing about them.
    def gone
      lost = brought - paths
      paths.any? { |path| secret?(path) } ? lost : lost.reject { |path| secret?(path) }
    end

    # Whether the machine has something else than the tree.
    def differs?
      paths.any? { |path| differs_at?(path) } || gone.any? { |path| ::File.exist?(path) }
    end

    # The list while files are being replaced: a run that is cut off is made good by the next one.
    def listing_before
      lines((brought + paths).uniq)
    end

    def listing
      lines((paths + (brought - gone)).uniq)
    end

    private

    def differs_at?(path)
      return false if outdated?(path)
      return true unless ::File.file?(path)

      ::File.binread(path) != content(path) || format('%04o', ::File.stat(path).mode & 0o7777) != mode(path)
    end

    def stands_here?(path)
      ::File.file?("#{@source}#{path}")
    end

    def among?(patterns, path)
      patterns.any? { |pattern| ::File.fnmatch(pattern.include?('/') ? pattern : "*/#{pattern}", path) }
    end

    def lines(paths)
      paths.sort.map { |path| "#{path}\n" }.join
    end
  end
end

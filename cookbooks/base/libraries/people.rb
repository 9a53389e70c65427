# frozen_string_literal: true

require 'date'
require 'etc'

module Causeway
  # People and their groups, as the data bags have them.
  module People
    # Keys that this cookbook put there, one file a person: their home may be on another machine.
    KEYS = '/etc/ssh/authorized_keys.d'

    # Keys that accounts had by themselves, where homes are on another machine.
    OWN_KEYS = '/etc/ssh/authorized_keys.own'

    module_function

    # The items of a data bag, for a recipe. One without items is a folder that was not brought along.
    def items(recipe, bag)
      recipe.data_bag(bag).sort.map { |id| recipe.data_bag_item(bag, id) }
    rescue Net::HTTPClientException => e
      raise unless e.response.code == '404'

      []
    end

    # Whether somebody still has access: `expires` is the last day.
    def active?(person, today = Date.today)
      person['action'] != 'remove' && (person['expires'].nil? || Date.parse(person['expires']) >= today)
    end

    # The first day on which shadow(5) refuses logins. Nil: it never does.
    def shut_from(expires)
      expires && (Date.parse(expires) + 1).iso8601
    end

    # The groups whose members may do everything.
    def administrators(groups, named)
      trusted = groups.select { |group| group['sudo'] && group['action'] != 'remove' }
      (named.to_a + trusted.map { |group| group['id'] }).uniq.sort
    end

    # Of a group, those who have accounts.
    def members(group, people)
      known = people.select { |person| active?(person) }.map { |person| person['id'] }
      (group['members'].to_a & known).sort
    end

    # Accounts that this cookbook created, of users who are not in the data bag any more.
    def forgotten(people)
      Dir.children(KEYS).sort - people.map { |person| person['id'] }
    rescue Errno::ENOENT
      []
    end

    # The groups that sshd accepts; empty: everyone.
    def login_groups(wanted, administrators, always)
      wanted.to_a.empty? ? [] : (wanted.to_a + administrators + always.to_a).uniq.sort
    end

    # Users with accounts whom sshd admits by its groups.
    def who_log_in(wanted, groups, people)
      known = people.select { |person| active?(person) }.map { |person| person['id'] }
      return known.sort if wanted.empty?

      chosen = groups.select { |group| wanted.include?(group['id']) && group['action'] != 'remove' }
      chosen.flat_map { |group| members(group, people) }.uniq.sort
    end

    # The user who runs Chef by sudo; nil for root.
    def from_afar(account = ENV.fetch('SUDO_USER', nil))
      account unless account == 'root'
    end

    # The file of keys that an account has by itself.
    def own_keys(account)
      ::File.join(Etc.getpwnam(account).dir, '.ssh/authorized_keys')
    end

    # The user who runs Chef by sudo, if in none of the groups: they would lock themselves out.
    def locked_out(groups, account = from_afar)
      return if groups.empty? || account.nil?

      own = [Etc.getgrgid(Etc.getpwnam(account).gid).name]
      Etc.group { |group| own << group.name if group.mem.include?(account) }
      account if (own & groups).empty?
    rescue ArgumentError # no such account, or no such group
      nil
    end

    # Whether shadow(5) has an expiry for an account.
    def expiry?(login, shadow = '/etc/shadow')
      line = ::File.foreach(shadow).find { |each| each.start_with?("#{login}:") }
      !line.nil? && !line.split(':')[7].to_s.strip.empty?
    end
  end
end

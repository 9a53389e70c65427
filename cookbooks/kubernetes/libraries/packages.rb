# frozen_string_literal: true

module Causeway
  # What dpkg and APT say of a package.
  module Packages
    module_function

    # Its version, '1.36.2-1.1'; nil where it is not installed.
    def installed(name)
      format = '--showformat=${db:Status-Status} ${Version}'
      shown = Mixlib::ShellOut.new('dpkg-query', '--show', format, name)
      shown.run_command.stdout[/\Ainstalled (\S+)\z/, 1]
    end

    # The version that APT would install, by its pins.
    def candidate(name)
      policy = Mixlib::ShellOut.new('apt-cache', 'policy', name, environment: { 'LC_ALL' => 'C' })
      found = policy.run_command.stdout[/^\s*Candidate: (\S+)$/, 1]
      found unless found == '(none)'
    end

    def outdated?(name)
      installed(name) != candidate(name)
    end

    def another_minor?(name, minor)
      version = installed(name)
      !version.nil? && !version.start_with?("#{minor}.")
    end
  end
end

# frozen_string_literal: true

# CINC or Chef Infra Client in local mode: all it reads lies beside this file, and nothing listens.
#   /usr/local/lib/causeway/client -z -c /var/lib/causeway/chef/client.rb -N <name>
# https://docs.chef.io/config_rb_client/

repository = File.dirname(File.expand_path(__FILE__))

local_mode true
chef_repo_path repository

# Not below root's home, where local mode would keep them: both outlive an update of the repository.
file_cache_path '/var/cache/causeway/chef'
file_backup_path '/var/cache/causeway/backup'

# Chef Infra Client starts once its licence is accepted: by the spec's software.chef.license, or not at all.
license = File.join(repository, 'license')
chef_license File.read(license).strip if File.exist?(license)

# Attributes that recipes do not read, and that grow with the number of people.
ohai.disabled_plugins = [:Passwd]

require File.join(repository, 'handlers', 'run_report')

run_report = Causeway::RunReport.new(repository)
report_handlers << run_report
exception_handlers << run_report

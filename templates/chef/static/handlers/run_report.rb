# frozen_string_literal: true

require 'fileutils'
require 'json'
require 'time'
require 'chef/handler'

module Causeway
  # What a run did, for later questions: one JSON file, complete or absent.
  # A report and exception handler: https://docs.chef.io/handlers/
  class RunReport < Chef::Handler
    PATH = '/var/lib/causeway/report.json'

    # What a why-run would have changed is beside it: that is not a run, and must not hide the last one.
    REHEARSAL = 'why-run.json'

    # repository: the Chef repository; its file `inputs` has the hash of all that was brought here.
    def initialize(repository, path = PATH)
      super()
      @repository = repository
      @path = path
    end

    def report
      FileUtils.mkdir_p(File.dirname(@path))
      path = rehearsal? ? File.join(File.dirname(@path), REHEARSAL) : @path
      fresh = "#{path}.new"
      File.write(fresh, "#{JSON.pretty_generate(told)}\n", perm: 0o644)
      File.rename(fresh, path)
    end

    private

    def rehearsal?
      Chef::Config[:why_run] ? true : false
    end

    def told
      {
        'started' => start_time&.utc&.iso8601,
        'ended' => end_time&.utc&.iso8601,
        'success' => success?,
        'why_run' => rehearsal?,
        'updated' => run_context ? updated_resources.map(&:to_s).uniq : [],
        'total' => run_context ? all_resources.length : 0,
        'exception' => run_status.formatted_exception,
        'chef' => Chef::VERSION,
        'cookbooks' => cookbooks,
        'inputs' => inputs
      }
    end

    # A run that fails early has no run context: nothing was compiled.
    def cookbooks
      return {} unless run_context

      run_context.cookbook_collection.sort.to_h { |name, cookbook| [name.to_s, cookbook.version] }
    end

    def inputs
      File.read(File.join(@repository, 'inputs')).strip
    rescue Errno::ENOENT
      nil
    end
  end
end

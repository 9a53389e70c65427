# frozen_string_literal: true

module Causeway
  # The key that signs an APT repository, and its URL, which is in a comment of the source.
  module AptKey
    module_function

    # The line of a source that says so.
    def origin(url)
      "# The key is that of #{url}\n"
    end

    # Whether the key of that URL exists already, so that it need not be fetched.
    def kept?(path, source, url)
      File.size?(path) && File.file?(source) && File.readlines(source).include?(origin(url)) ? true : false
    end
  end
end

# frozen_string_literal: true

module Causeway
  # Nightly copies, by their units.
  module Copies
    module_function

    def ours(folder)
      Dir.glob("#{folder}/causeway-copy-*.timer").map do |file|
        ::File.basename(file, '.timer').delete_prefix('causeway-copy-')
      end.sort
    end
  end
end

# frozen_string_literal: true

#
# Cookbook:: base
# Recipe:: default
#

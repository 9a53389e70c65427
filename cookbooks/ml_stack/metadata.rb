# frozen_string_literal: true

name             'ml_stack'
maintainer       'The Causeway authors'
license          'Apache-2.0'
description      'Python for machine learning: NumPy, TensorFlow, PyTorch, OpenCV, TensorBoard, as the GPUs can run it'
version          '0.1.0'
chef_version     '>= 18.0'
supports         'ubuntu', '>= 22.04'
supports         'debian', '>= 12.0'

depends          'base', '~> 0.1'

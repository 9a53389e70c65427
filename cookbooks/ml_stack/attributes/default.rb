# frozen_string_literal: true

# Where Miniforge is. Root's, and readable by all: who wants packages of their own makes an environment at home.
default['ml_stack']['conda'] = '/opt/conda'

# Where the builds of environments are, one for each content; `conda`'s `envs/NAME` points to the one in use.
default['ml_stack']['builds'] = '/opt/ml_stack'

# Former builds that are kept, for programs that were started with one.
default['ml_stack']['keep'] = 1

# The environment's name: `conda activate ml`.
default['ml_stack']['environment'] = 'ml'

# Whether login shells begin in it.
default['ml_stack']['activate'] = false

# What is in it: names in `node['software']`, where their versions are, => names in PyPI. nil leaves one out.
default['ml_stack']['packages'] = {
  'numpy' => 'numpy',
  'tensorflow' => 'tensorflow',
  'torch' => 'torch',
  'torchvision' => 'torchvision',
  'opencv' => 'opencv-python-headless',
  'tensorboard' => 'tensorboard',
}

# Further requirements, as pip writes them: `scikit-learn==1.8.0`.
default['ml_stack']['further'] = []

# What is imported before a new build is put in use.
default['ml_stack']['imports'] = %w(numpy tensorflow torch torchvision cv2 tensorboard)

# PyTorch's builds: cpu, cu118, cu126, cu130. nil: by the GPUs and their driver (libraries/wheels.rb).
default['ml_stack']['build'] = nil

# Conda's channels, and the URL before their names if it is not conda's own (a mirror).
default['ml_stack']['channels'] = ['conda-forge']
default['ml_stack']['channel_alias'] = nil

# PyPI, or a mirror of it (nil: PyPI), and what PyTorch's builds are below.
default['ml_stack']['index'] = nil
default['ml_stack']['wheels'] = 'https://download.pytorch.org/whl'

# JupyterLab in the environment, and a unit for everybody: `systemctl --user start jupyterlab`.
default['ml_stack']['jupyterlab'] = { 'enabled' => false, 'version' => nil }

# A unit for everybody: `systemctl --user start tensorboard@runs` shows what is in ~/runs.
default['ml_stack']['tensorboard_unit'] = true

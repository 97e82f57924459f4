"""Written by CMake when the plugin is built."""

TORCH_VERSION: str

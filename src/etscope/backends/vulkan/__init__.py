"""Vulkan and WebGPU, which share a partitioner and a delegate id."""

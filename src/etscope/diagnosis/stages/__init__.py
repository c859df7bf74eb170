"""The stages of a model, from the eager module to the device, each compared with the one before."""

//! Weights and forward passes of the supported model families

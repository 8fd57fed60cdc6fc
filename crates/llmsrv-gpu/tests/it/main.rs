//! Every kernel against its scalar twin, on the software device of the machine (lavapipe).

mod kernels;
mod twin;

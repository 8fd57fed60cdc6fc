//! Gives memory that a server no longer needs back to the system.
//!
//! The allocator of glibc keeps what was freed for the next allocation: after a large request or an
//! unloaded model hundreds of megabytes may stay with the process. Here a thread looks now and then
//! how much that is, and gives it back. Other allocators do that themselves.

#[cfg(all(target_os = "linux", target_env = "gnu"))]
mod glibc;

/// Starts to give memory back, until the process ends. To be called once, by servers.
pub fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    glibc::start();
}

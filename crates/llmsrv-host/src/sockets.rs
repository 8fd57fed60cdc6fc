//! Which sockets listen on this machine, and whose they are.

use std::{
    collections::HashSet,
    net::{IpAddr, SocketAddr},
};

use procfs::{
    ProcResult,
    net::{TcpNetEntry, TcpState},
    process::{FDTarget, Process},
};

/// Returns the addresses on which a process listens; `None` if that cannot be seen, because there is
/// no such process or it is another user's.
pub fn of_process(pid: i32) -> Option<Vec<SocketAddr>> {
    let descriptors = Process::new(pid).ok()?.fd().ok()?;
    let inodes: HashSet<u64> = descriptors
        .filter_map(|descriptor| match descriptor.ok()?.target {
            FDTarget::Socket(inode) => Some(inode),
            _ => None,
        })
        .collect();
    let mine = listening().filter(|entry| inodes.contains(&entry.inode));
    Some(addresses(mine))
}

/// Returns the addresses at which anybody listens on a port.
pub fn on_port(port: u16) -> Vec<SocketAddr> {
    addresses(listening().filter(|entry| entry.local_address.port() == port))
}

/// Tells whether a listener at one of these addresses hears all machines.
pub fn hear_all(addresses: &[SocketAddr]) -> bool {
    addresses
        .iter()
        .any(|address| address.ip().is_unspecified())
}

fn addresses(entries: impl Iterator<Item = TcpNetEntry>) -> Vec<SocketAddr> {
    let mut all: Vec<SocketAddr> = entries.map(|entry| unmapped(entry.local_address)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// An address of IPv4 that is written as one of IPv6 is meant as it was.
fn unmapped(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V6(v6) => v6.to_canonical(),
        v4 @ IpAddr::V4(_) => v4,
    };
    SocketAddr::new(ip, address.port())
}

fn listening() -> impl Iterator<Item = TcpNetEntry> {
    // A machine may have no IPv6.
    let tables: [fn() -> ProcResult<Vec<TcpNetEntry>>; 2] = [procfs::net::tcp, procfs::net::tcp6];
    let entries = tables
        .into_iter()
        .flat_map(|table| table().unwrap_or_default());
    entries.filter(|entry| entry.state == TcpState::Listen)
}

#[cfg(test)]
mod tests {
    use std::{
        net::TcpListener,
        time::{Duration, Instant},
    };

    use super::*;

    #[test]
    fn listeners_are_found_by_process_and_port() {
        // Others may listen on the same port, at addresses that people use.
        let listener = TcpListener::bind("127.83.91.7:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mine = of_process(std::process::id() as i32).unwrap();
        assert!(mine.contains(&address), "{mine:?}");
        assert!(on_port(address.port()).contains(&address));
        assert!(!hear_all(&[address]));
        assert!(hear_all(&["[::]:80".parse().unwrap()]));
        drop(listener);
        // A process that another test starts has it, too, until it runs its program.
        let deadline = Instant::now() + Duration::from_secs(20);
        while on_port(address.port()).contains(&address) {
            assert!(Instant::now() < deadline, "nobody listens at {address}");
        }
        assert_eq!(of_process(i32::MAX), None);
    }
}

//! Addresses of this machine.

use std::net::{IpAddr, UdpSocket};

/// Returns the addresses at which other machines may reach this one, the one towards the default
/// route first. Loopback and link-local addresses are left out.
pub fn addresses() -> Vec<IpAddr> {
    let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
    let mut all: Vec<IpAddr> = interfaces
        .iter()
        .map(if_addrs::Interface::ip)
        .filter(is_reachable)
        .collect();
    // IPv4 is what people type.
    all.sort_by_key(IpAddr::is_ipv6);
    all.dedup();
    if let Some(main) = towards_others().filter(is_reachable) {
        all.retain(|address| *address != main);
        all.insert(0, main);
    }
    all
}

/// Asks the system which address it would use towards the rest of the world. No packet is sent.
fn towards_others() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").ok()?;
    // An address of the block for documentation (RFC 5737).
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn is_reachable(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_loopback() && !v4.is_link_local() && !v4.is_unspecified(),
        IpAddr::V6(v6) => !v6.is_loopback() && !v6.is_unicast_link_local() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_others_can_use() {
        for (address, reachable) in [
            ("127.0.0.1", false),
            ("169.254.1.1", false),
            ("192.168.1.7", true),
            ("::1", false),
            ("fe80::1", false),
            ("2001:db8::1", true),
        ] {
            assert_eq!(
                is_reachable(&address.parse().unwrap()),
                reachable,
                "{address}"
            );
        }
        for address in addresses() {
            assert!(is_reachable(&address));
        }
    }
}

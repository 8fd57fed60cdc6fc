//! Where a server listens and where its clients find it, in every form users write it.
//!
//! `host`, `:port`, `host:port`, `[v6]`, `[v6]:port`, a bare `v6`, `http://host` (port 80),
//! `https://host` (port 443), each with an optional path.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
};

/// Port used when none is written.
pub const DEFAULT_PORT: u16 = 11434;

/// A parsed address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// `https` was asked for.
    pub tls: bool,
    /// Name or IP without brackets; empty = every interface.
    pub host: String,
    /// 0 = any free port.
    pub port: u16,
    /// Path below which the API lives, with a leading slash, or empty.
    pub path: String,
}

/// What is wrong with an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mistake {
    /// The port is not a number from 0 to 65535.
    Port {
        /// What was written.
        port: String,
        /// The address with the default port instead.
        address: Address,
    },
    /// The host is neither a name nor an IP address.
    Host(String),
}

impl Address {
    /// Reads any of the forms; an empty text is the default address.
    pub fn parse(text: &str) -> Result<Address, Mistake> {
        let text = text.trim().trim_matches(['"', '\'']).trim();
        let (tls, default_port, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (false, 80, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (true, 443, rest)
        } else {
            (false, DEFAULT_PORT, text)
        };
        let (authority, path) = match rest.split_once('/') {
            Some((authority, path)) => (authority, path.trim_end_matches('/')),
            None => (rest, ""),
        };
        let path = if path.is_empty() {
            String::new()
        } else {
            format!("/{path}")
        };
        let (host, port) = split_port(authority);
        let host = if authority.is_empty() {
            "127.0.0.1"
        } else {
            host
        };
        if !is_host(host) || path.contains(char::is_whitespace) {
            return Err(Mistake::Host(host.to_owned()));
        }
        let address = Address {
            tls,
            host: host.to_owned(),
            port: default_port,
            path,
        };
        match port.map(str::parse) {
            None => Ok(address),
            Some(Ok(port)) => Ok(Address { port, ..address }),
            Some(Err(_)) => Err(Mistake::Port {
                port: port.unwrap_or_default().to_owned(),
                address,
            }),
        }
    }

    /// Returns `host:port` as sockets take it; an empty host stands for every interface.
    pub fn authority(&self) -> String {
        if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        }
    }

    /// Returns the base URL a client uses, without a slash at the end. Addresses that mean "every
    /// interface" become loopback ones.
    pub fn url(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        let authority = self.to_connect().authority();
        format!("{scheme}://{authority}{}", self.path)
    }

    /// Returns the address that reaches a server which listens here.
    pub fn to_connect(&self) -> Address {
        let host = match self.host.as_str() {
            "" | "0.0.0.0" => "127.0.0.1",
            "::" => "::1",
            host => host,
        };
        Address {
            host: host.to_owned(),
            ..self.clone()
        }
    }

    /// Tells whether a server at this address would be on this machine.
    pub fn is_local(&self) -> bool {
        let unspecified = self
            .host
            .parse::<IpAddr>()
            .is_ok_and(|ip| ip.is_unspecified());
        self.host.is_empty() || unspecified || self.is_loopback()
    }

    /// Tells whether only this machine can reach a server at this address.
    pub fn is_loopback(&self) -> bool {
        let host = self.host.to_ascii_lowercase();
        host == "localhost"
            || host.ends_with(".localhost")
            || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
    }
}

impl fmt::Display for Address {
    /// Writes the shortest form that parses to the same address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.tls {
            f.write_str("https://")?;
        }
        write!(f, "{}{}", self.authority(), self.path)
    }
}

/// Splits off the port. A text with more than one colon outside brackets is an IPv6 address.
fn split_port(authority: &str) -> (&str, Option<&str>) {
    if let Some(rest) = authority.strip_prefix('[')
        && let Some((host, after)) = rest.split_once(']')
    {
        let port = (!after.is_empty()).then(|| after.strip_prefix(':').unwrap_or(after));
        return (host, port);
    }
    match authority.split_once(':') {
        Some((host, port)) if !port.contains(':') => (host, Some(port)),
        _ => (authority, None),
    }
}

/// Accepts names (their characters are checked, not their existence) and IP addresses; an IPv6 one
/// may name its zone.
fn is_host(host: &str) -> bool {
    if host.contains(':') {
        return host
            .split('%')
            .next()
            .is_some_and(|ip| ip.parse::<Ipv6Addr>().is_ok())
            && !host.contains(' ');
    }
    host.chars()
        .all(|c| c.is_alphanumeric() || "-._".contains(c))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_form_of_the_contract_is_read() {
        for (text, authority, url) in [
            ("", "127.0.0.1:11434", "http://127.0.0.1:11434"),
            (
                "example.com",
                "example.com:11434",
                "http://example.com:11434",
            ),
            ("1.2.3.4", "1.2.3.4:11434", "http://1.2.3.4:11434"),
            (":1234", ":1234", "http://127.0.0.1:1234"),
            ("1.2.3.4:1234", "1.2.3.4:1234", "http://1.2.3.4:1234"),
            ("0.0.0.0", "0.0.0.0:11434", "http://127.0.0.1:11434"),
            ("[::1]", "[::1]:11434", "http://[::1]:11434"),
            ("[::]:1337", "[::]:1337", "http://[::1]:1337"),
            ("::1", "[::1]:11434", "http://[::1]:11434"),
            (
                "http://example.com",
                "example.com:80",
                "http://example.com:80",
            ),
            (
                "https://example.com",
                "example.com:443",
                "https://example.com:443",
            ),
            (
                "https://example.com:8443/llm/",
                "example.com:8443",
                "https://example.com:8443/llm",
            ),
            (
                "example.com:1234/some/path",
                "example.com:1234",
                "http://example.com:1234/some/path",
            ),
            ("  \"1.2.3.4:5\" ", "1.2.3.4:5", "http://1.2.3.4:5"),
            ("localhost:0", "localhost:0", "http://localhost:0"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.authority(), address.url()),
                (authority.to_owned(), url.to_owned()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn a_bad_port_gives_the_default_of_the_scheme() {
        for (text, port, authority) in [
            ("1.2.3.4:66000", "66000", "1.2.3.4:11434"),
            ("1.2.3.4:-1", "-1", "1.2.3.4:11434"),
            ("host:", "", "host:11434"),
            ("http://host:x", "x", "host:80"),
            ("https://host:x", "x", "host:443"),
            ("[::1]:x", "x", "[::1]:11434"),
        ] {
            let Err(Mistake::Port {
                port: written,
                address,
            }) = Address::parse(text)
            else {
                panic!("{text}");
            };
            assert_eq!(
                (written.as_str(), address.authority().as_str()),
                (port, authority)
            );
        }
    }

    #[test]
    fn a_host_that_cannot_be_one_is_refused() {
        for text in [
            "a b",
            "user@host",
            "1:2:3",
            "[x]y:1",
            "host/a b",
            "ftp://host",
        ] {
            assert!(Address::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn local_addresses_are_known() {
        for (text, local, loopback) in [
            ("", true, true),
            (":8080", true, false),
            ("0.0.0.0", true, false),
            ("LOCALHOST:1", true, true),
            ("127.5.5.5", true, true),
            ("[::]", true, false),
            ("[::1]", true, true),
            ("192.168.0.2", false, false),
            ("example.com", false, false),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(
                (address.is_local(), address.is_loopback()),
                (local, loopback),
                "{text}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>()) {
            let _ = Address::parse(&text);
        }

        #[test]
        fn what_is_written_reads_back(tls: bool, host in "([a-z0-9.-]{1,12}|::1|fe80::2|)", port: u16, path in "(/[a-z]{1,5}){0,2}") {
            let address = Address { tls, host, port, path };
            prop_assert_eq!(Address::parse(&address.to_string()), Ok(address));
        }
    }
}

//! Which addresses a registry has, and which of them may be spoken to in the clear.
//!
//! Encryption comes first. Plain HTTP is for names that say `http://`, for this machine, and, where
//! the caller permits it, for hosts of a private network; never for another host because encryption
//! failed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use llmsrv_store::{ModelName, Scheme};
use reqwest::Url;

use crate::Error;

/// An address to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Base {
    /// Ends with a slash.
    pub(crate) url: Url,
    /// A certificate must be valid.
    pub(crate) verify: bool,
}

impl Base {
    pub(crate) fn new(mut url: Url, verify: bool) -> Base {
        if !url.path().ends_with('/') {
            let path = format!("{}/", url.path());
            url.set_path(&path);
        }
        Base { url, verify }
    }
}

/// How far away a host is, as far as its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    Loopback,
    Private,
    Public,
}

/// Returns the addresses of a registry, best first.
pub(crate) fn bases(name: &ModelName, insecure: bool) -> Result<Vec<Base>, Error> {
    let host = name.host();
    let url = |scheme: &str| {
        Url::parse(&format!("{scheme}://{host}/")).map_err(|_| Error::Host { host: host.into() })
    };
    if name.scheme() == Scheme::Http {
        return Ok(vec![Base::new(url("http")?, true)]);
    }
    let https = url("https")?;
    let reach = reach(&https);
    let mut bases = vec![Base::new(https.clone(), true)];
    if insecure && reach != Reach::Public {
        bases.push(Base::new(https, false));
    }
    if reach == Reach::Loopback || (insecure && reach == Reach::Private) {
        bases.push(Base::new(url("http")?, true));
    }
    Ok(bases)
}

/// Says how far away the host of an address is.
pub(crate) fn reach(url: &Url) -> Reach {
    let host = url.host_str().unwrap_or_default();
    let host = host.trim_matches(['[', ']']).trim_end_matches('.');
    match host.parse::<IpAddr>() {
        Ok(address) => reach_of_ip(address),
        Err(_) => reach_of_name(host),
    }
}

fn reach_of_name(host: &str) -> Reach {
    let is_below = |domain: &str| host.ends_with(domain);
    if host == "localhost" || is_below(".localhost") {
        Reach::Loopback
    } else if !host.contains('.') || [".local", ".internal"].into_iter().any(is_below) {
        // A name of one word is one of the own network, such as a container's.
        Reach::Private
    } else {
        Reach::Public
    }
}

/// Says how far away an address is. One that stands for an IPv4 address is as near as that.
pub(crate) fn reach_of_ip(address: IpAddr) -> Reach {
    let private = match address {
        address if address.is_loopback() => return Reach::Loopback,
        IpAddr::V4(v4) => {
            let [a, b, c, _] = v4.octets();
            // Shared by the customers of a provider; of protocols; of measurements; reserved.
            let special = a == 100 && b & 0xc0 == 64
                || [a, b, c] == [192, 0, 0]
                || a == 198 && b & 0xfe == 18
                || a >= 240;
            v4.is_private() || v4.is_link_local() || a == 0 || v4.is_multicast() || special
        }
        IpAddr::V6(v6) => {
            let inside = v4_inside(v6).into_iter().map(|v4| reach_of_ip(v4.into()));
            match inside.min_by_key(|reach| *reach as u8) {
                Some(Reach::Public) => false,
                Some(near) => return near,
                // Site-local ones are out of use and still private.
                None => {
                    v6.is_unique_local()
                        || v6.is_unicast_link_local()
                        || v6.is_multicast()
                        || v6.segments()[0] & 0xffc0 == 0xfec0
                }
            }
        }
    };
    if private {
        Reach::Private
    } else {
        Reach::Public
    }
}

/// Returns the IPv4 addresses that an IPv6 address leads to: mapped and compatible ones (RFC 4291),
/// those behind a translator (NAT64, RFC 6052 and 8215), and the ends of tunnels (6to4, RFC 3056;
/// Teredo, RFC 4380, whose client is written inverted).
fn v4_inside(v6: Ipv6Addr) -> Vec<Ipv4Addr> {
    let bits = v6.to_bits();
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    match v6.segments() {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..]
        | [0, 0, 0, 0, 0xffff, 0, ..]
        | [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![at(0)],
        // The prefixes that a network may choose for itself put the address at several places.
        [0x64, 0xff9b, 1, ..] => vec![Ipv4Addr::UNSPECIFIED],
        [0x2002, ..] => vec![at(80)],
        [0x2001, 0, ..] => vec![at(64), Ipv4Addr::from_bits(!(bits as u32))],
        _ => Vec::new(),
    }
}

/// Tells whether credentials for `a` are good for `b`: same scheme, host and port.
pub(crate) fn same_origin(a: &Url, b: &Url) -> bool {
    a.origin() == b.origin()
}

/// Checks a redirect of a registry at `base`.
pub(crate) fn check_redirect(base: &Url, target: &Url) -> Result<(), Error> {
    let refuse = |reason| {
        Err(Error::Redirect {
            host: authority(base),
            target: authority(target),
            reason,
        })
    };
    let far = reach(base) == Reach::Public;
    let target_far = reach(target) == Reach::Public;
    match target.scheme() {
        _ if same_origin(base, target) => Ok(()),
        // Nobody outside may make this machine ask around in its own network.
        "http" | "https" if far && !target_far => refuse("it is an address of a private network"),
        "https" => Ok(()),
        "http" if base.scheme() == "http" || !target_far => Ok(()),
        "http" => refuse("it is not encrypted"),
        _ => refuse("it is no web address"),
    }
}

/// Returns host and port as people write them.
pub(crate) fn authority(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    url.port()
        .map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_is_the_last_resort_and_only_near() {
        for (name, insecure, expected) in [
            ("m", false, &["https"][..]),
            ("m", true, &["https"]),
            ("example.com/a/b", true, &["https"]),
            ("http://example.com/a/b", false, &["http"]),
            ("localhost:5000/a/b", false, &["https", "http"]),
            ("127.0.0.1:5000/a/b", true, &["https", "unverified", "http"]),
            ("10.0.0.7:5000/a/b", false, &["https"]),
            ("10.0.0.7:5000/a/b", true, &["https", "unverified", "http"]),
            ("registry:5000/a/b", true, &["https", "unverified", "http"]),
            ("172.32.0.1/a/b", true, &["https"]),
        ] {
            let bases = bases(&name.parse().unwrap(), insecure).unwrap();
            let kinds: Vec<&str> = bases
                .iter()
                .map(|base| {
                    if base.verify {
                        base.url.scheme()
                    } else {
                        "unverified"
                    }
                })
                .collect();
            assert_eq!(kinds, expected, "{name} {insecure}");
        }
        assert!(bases(&"a:b:c/n/m".parse().unwrap(), false).is_err());
    }

    #[test]
    fn redirects_go_neither_into_the_clear_nor_into_the_house() {
        let refused = |from: &str, to: &str| {
            check_redirect(&Url::parse(from).unwrap(), &Url::parse(to).unwrap()).is_err()
        };
        assert!(!refused("https://r.example/", "https://cdn.example/x"));
        assert!(!refused("http://127.0.0.1:1/", "http://localhost:2/x"));
        assert!(!refused("http://r.example/", "http://cdn.example/x"));
        assert!(refused("https://r.example/", "http://cdn.example/x"));
        assert!(refused("https://r.example/", "http://169.254.169.254/x"));
        assert!(refused("https://r.example/", "https://127.0.0.1/x"));
        assert!(refused("https://r.example/", "https://[::ffff:10.0.0.1]/x"));
        assert!(refused("https://r.example/", "file:///etc/passwd"));
        for inside in [
            "[::]",
            "[::1]",
            "[::127.0.0.1]",
            "[::10.0.0.1]",
            "[::ffff:0:127.0.0.1]",
            "[64:ff9b::127.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2002:a00:1::1]",
            "[2002:a9fe:a9fe::]",
            // Teredo by way of a server inside, and to a client inside.
            "[2001:0:a00:1::]",
            "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
            "[fec0::1]",
            "[fd00::1]",
            "[fe80::1]",
            "[ff02::1]",
            "0.1.2.3",
            "224.0.0.1",
            "240.0.0.1",
            "198.18.0.1",
            "2130706433",
            "0x7f.1",
            "100.64.0.1",
        ] {
            assert!(
                refused("https://r.example/", &format!("https://{inside}/x")),
                "{inside}"
            );
        }
        for outside in [
            "[64:ff9b::8.8.8.8]",
            "[2002:808:808::1]",
            "[::ffff:8.8.8.8]",
            "[2606:4700::1]",
            "8.8.8.8",
        ] {
            assert!(
                !refused("https://r.example/", &format!("https://{outside}/x")),
                "{outside}"
            );
        }
    }
}

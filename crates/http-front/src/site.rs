//! By which names a server may be called, and which web pages may call it.
//!
//! A page whose name was led to the address of a server (DNS rebinding) calls it as if it were at
//! home: its browser takes the server for the page's own. Only the name that it calls gives it away.

use std::{
    borrow::Cow,
    fs::File,
    io::Read as _,
    net::{IpAddr, UdpSocket},
    sync::LazyLock,
};

use http::{HeaderMap, Uri, header};

/// Returns the name by which a request calls the server, with its port; empty if it says none.
pub fn called_host<'a>(headers: &'a HeaderMap, uri: &'a Uri) -> Cow<'a, str> {
    if let Some(authority) = uri.authority() {
        return authority.as_str().into();
    }
    let host = headers.get(header::HOST).map(http::HeaderValue::as_bytes);
    String::from_utf8_lossy(host.unwrap_or_default())
}

/// From where a server can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Its own names are those of this machine and of its private networks.
    Machine,
    /// As well any address, for behind a translation of addresses its own ones are unknown; any name
    /// without a dot, such as that of a container, and of a service of Kubernetes (`.svc`,
    /// `.svc.cluster.local`): no page of the internet has one; and this machine's own name in a domain
    /// that its resolver searches (`fritz.box`): who gives out that domain is in the network already.
    Network,
}

/// Tells whether a host, with or without a port, can only mean this server, so that no foreign name
/// was led to its address. Whoever lets a page call (`origins`) knows that its host leads here.
pub fn is_own_host(host: &str, origins: &[String], reach: Reach) -> bool {
    let name = host_name(host);
    if let Ok(address) = name.parse::<IpAddr>() {
        return reach == Reach::Network || is_near(address);
    }
    if !name.is_ascii() {
        return false;
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    name.is_empty()
        || name == "localhost"
        || name.ends_with(".localhost")
        || GATEWAYS.contains(&name.as_str())
        || reach == Reach::Network && (!name.contains('.') || is_service(&name))
        || own_name().is_some_and(|own| {
            let domains = SEARCHED.iter().filter(|_| reach == Reach::Network);
            is_name_of(&own, &name) || is_name_in(domains, &own, &name)
        })
        || origins.iter().any(|origin| is_host_of(&name, origin))
}

/// Tells whether a page of this origin was served under this very host.
pub fn is_same_origin(origin: &str, host: &str) -> bool {
    let ours = origin
        .strip_prefix("http://")
        .or_else(|| origin.strip_prefix("https://"));
    ours.is_some_and(|ours| ours.eq_ignore_ascii_case(host))
}

/// Tells whether an origin is one of these patterns, each with at most one `*` for any text.
pub fn is_origin_of<P: AsRef<str>>(patterns: &[P], origin: &str) -> bool {
    let is_of = |pattern: &str| match pattern.split_once('*') {
        None => pattern.eq_ignore_ascii_case(origin),
        Some((start, end)) => {
            origin.len() >= start.len() + end.len()
                && origin.starts_with(start)
                && origin.ends_with(end)
        }
    };
    patterns.iter().any(|pattern| is_of(pattern.as_ref()))
}

/// The host without its port and the brackets of an address.
fn host_name(host: &str) -> &str {
    match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    }
}

/// Tells whether a name is that of the machine, alone or in the domains of its own network.
fn is_name_of(own: &str, name: &str) -> bool {
    let short = own.split('.').next().unwrap_or_default();
    let domains = [".local", ".internal"];
    name == own
        || name
            .strip_prefix(short)
            .is_some_and(|domain| domain.is_empty() || domains.contains(&domain))
}

/// Tells whether a name is that of the machine in one of these domains.
fn is_name_in<'a>(domains: impl IntoIterator<Item = &'a String>, own: &str, name: &str) -> bool {
    let short = own.split('.').next().unwrap_or_default();
    let domain = name
        .strip_prefix(short)
        .and_then(|rest| rest.strip_prefix('.'));
    domain.is_some_and(|domain| domains.into_iter().any(|searched| searched == domain))
}

/// Tells whether a name is that of a service within a cluster.
fn is_service(name: &str) -> bool {
    let service = name.strip_suffix(".cluster.local").unwrap_or(name);
    service
        .strip_suffix(".svc")
        .is_some_and(|service| !service.is_empty())
}

/// The domains that a resolver searches for short names, as its configuration has them (`search`,
/// `domain`). A top-level domain of the internet is none: whoever likes can have a name there.
fn searched(configuration: &str) -> Vec<String> {
    let mut domains = Vec::new();
    for line in configuration.lines() {
        let mut words = line.split_whitespace();
        if matches!(words.next(), Some("search" | "domain")) {
            let named = words.map(|word| word.trim_matches('.').to_ascii_lowercase());
            domains.extend(named.filter(|domain| {
                domain.contains('.') || PRIVATE_DOMAINS.contains(&domain.as_str())
            }));
        }
    }
    domains
}

/// Tells whether an origin has this host, written out.
fn is_host_of(name: &str, origin: &str) -> bool {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    let host = host_name(host.split('/').next().unwrap_or_default());
    !host.contains('*') && host.eq_ignore_ascii_case(name)
}

/// Tells whether an address is one of this machine or of a private network.
fn is_near(address: IpAddr) -> bool {
    let address = address.to_canonical();
    let is_near = match address {
        IpAddr::V4(v4) => v4.is_loopback() || v4.is_private() || v4.is_unspecified(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unspecified() || v6.is_unique_local(),
    };
    // Nothing can be bound to the address of another machine.
    is_near || UdpSocket::bind((address, 0)).is_ok()
}

fn own_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    let name = name.trim().trim_end_matches('.').to_ascii_lowercase();
    (!name.is_empty()).then_some(name)
}

/// What the resolver of this machine searched when a name was first asked about.
static SEARCHED: LazyLock<Vec<String>> = LazyLock::new(|| {
    let mut text = String::new();
    let file = File::open("/etc/resolv.conf");
    // Without it there are none.
    let _ = file.and_then(|file| file.take(MAX_RESOLVER_BYTES).read_to_string(&mut text));
    searched(&text)
});
/// Longer than any that names a handful of domains and servers.
const MAX_RESOLVER_BYTES: u64 = 64 << 10;
/// Domains of one word that the internet does not have.
const PRIVATE_DOMAINS: &[&str] = &[
    "corp",
    "home",
    "internal",
    "intranet",
    "lan",
    "local",
    "localdomain",
    "private",
];
/// What containers call the machine they run on.
const GATEWAYS: &[&str] = &[
    "host.docker.internal",
    "gateway.docker.internal",
    "host.containers.internal",
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_names_of_this_machine_are_its_own() {
        let origins = [
            "https://llm.example:9000",
            "https://*.wild.example",
            "https://[fe80::7]:80/",
            "*",
        ]
        .map(str::to_owned);
        let is_own = |host: &str, reach| is_own_host(host, &origins, reach);
        let name = own_name().unwrap();
        let short = name.split('.').next().unwrap();
        for own in [
            "",
            "localhost",
            "LOCALHOST:1",
            "localhost.",
            "x.localhost",
            "127.0.0.1:11434",
            "[::1]:80",
            "10.1.2.3",
            "192.168.0.9:1",
            "0.0.0.0",
            "[fd00::1]",
            "[::ffff:127.0.0.1]:1",
            "host.docker.internal:11434",
            "llm.example:8",
            "LLM.example",
            &name,
            &format!("{short}.local:1"),
            &format!("{short}.internal"),
        ] {
            assert!(is_own(own, Reach::Machine), "{own}");
            assert!(is_own(own, Reach::Network), "{own}");
        }
        // Others than this machine's, but no page's either.
        for near in [
            "8.8.8.8",
            "llmsrv.ai.svc",
            "llmsrv.ai.svc.cluster.local:11434",
            "8.8.8.8:11434",
            "[2001:4860::1]:80",
            "[::ffff:8.8.8.8]",
            "server",
        ] {
            assert!(!is_own(near, Reach::Machine), "{near}");
            assert!(is_own(near, Reach::Network), "{near}");
        }
        for foreign in [
            "evil.example",
            "evil.example:11434",
            "evil.local",
            "evil.internal:11434",
            "evil.docker.internal",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.llm.example",
            "svc.evil.example",
            "x.svc.evil.example",
            "x.ysvc",
            ".svc",
            "cluster.local",
            "evil.cluster.local",
            &format!("{short}.evil.example"),
            "any.wild.example",
            "s\u{fffd}rver",
        ] {
            assert!(!is_own(foreign, Reach::Machine), "{foreign}");
            assert!(!is_own(foreign, Reach::Network), "{foreign}");
        }
        assert!(is_name_of("box.lan", "box.local") && is_name_of("box.lan", "box.lan"));
        assert!(!is_name_of("box.lan", "box.evil.example") && !is_name_of("box", "boxer.local"));
    }

    #[test]
    fn the_machine_has_a_name_in_the_domains_that_are_searched() {
        let configuration = "# search comment.example\n; domain other.example\nnameserver 10.0.0.1\n\
            search Fritz.box. tail1.ts.net\tlan com\n domain  corp.example\noptions ndots:5\nsearching no.example\nsearch";
        let domains = searched(configuration);
        assert_eq!(
            domains,
            ["fritz.box", "tail1.ts.net", "lan", "corp.example"]
        );
        let is_own = |own, name| is_name_in(&domains, own, name);
        for own in [
            "box.fritz.box",
            "box.lan",
            "box.tail1.ts.net",
            "box.corp.example",
        ] {
            assert!(
                is_own("box", own) && is_own("box.elsewhere.example", own),
                "{own}"
            );
        }
        for foreign in [
            "fritz.box",
            "box.com",
            "box.ts.net",
            "boxer.lan",
            "x.box.lan",
            "other.lan",
            "box.lan.evil.example",
            "box",
            "",
        ] {
            assert!(!is_own("box", foreign), "{foreign}");
        }
        assert!(searched("").is_empty() && searched("search .").is_empty());
    }

    #[test]
    fn an_origin_is_compared_as_a_whole() {
        let patterns = ["https://*.example.org", "app://*", "http://One.example"];
        for allowed in ["https://a.example.org", "app://x", "http://one.example"] {
            assert!(is_origin_of(&patterns, allowed), "{allowed}");
        }
        for refused in [
            "https://example.org.evil",
            "http://a.example.org",
            "http://one.example:81",
            "null",
            "",
        ] {
            assert!(!is_origin_of(&patterns, refused), "{refused}");
        }
        assert!(is_origin_of(&["*"], "https://anything"));
        assert!(is_same_origin("https://Here:1", "here:1"));
        for other in [
            "http://here:2",
            "http://here",
            "here:1",
            "ftp://here:1",
            "null",
        ] {
            assert!(!is_same_origin(other, "here:1"), "{other}");
        }
    }

    #[test]
    fn the_name_that_is_called_comes_from_the_target_first() {
        let called = |host: Option<&[u8]>, uri: &'static str| {
            let mut headers = HeaderMap::new();
            if let Some(host) = host {
                headers.insert(header::HOST, HeaderValue::from_bytes(host).unwrap());
            }
            called_host(&headers, &Uri::from_static(uri)).into_owned()
        };
        assert_eq!(called(None, "/log"), "");
        assert_eq!(called(Some(b"a:1"), "/log"), "a:1");
        assert_eq!(called(Some(b"a:1"), "http://b:2/log"), "b:2");
        // What is no text is no name of ours.
        let odd = called(Some(b"s\xffrver"), "/log");
        assert!(!is_own_host(&odd, &[], Reach::Network), "{odd}");
    }
}

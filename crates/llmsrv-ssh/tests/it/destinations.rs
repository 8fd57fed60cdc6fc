//! What is a destination and what is not.

use llmsrv_ssh::{Destination, Jump, destination::DestinationError};
use proptest::prelude::*;

fn parts(text: &str) -> Result<(Option<String>, String), DestinationError> {
    let destination: Destination = text.parse()?;
    Ok((
        destination.user().map(str::to_owned),
        destination.host().to_owned(),
    ))
}

#[test]
fn names_addresses_and_aliases_are_destinations() {
    for (text, user, host) in [
        ("ann@host", Some("ann"), "host"),
        ("alias_1", None, "alias_1"),
        ("ann@10.0.0.1", Some("ann"), "10.0.0.1"),
        ("ann@::1", Some("ann"), "::1"),
        ("ann@[fe80::1%eth0]", Some("ann"), "fe80::1%eth0"),
        (
            "ann@example.org@host.example.org",
            Some("ann@example.org"),
            "host.example.org",
        ),
        ("DOMAIN\\ann@host", Some("DOMAIN\\ann"), "host"),
        ("rechner-süd", None, "rechner-süd"),
    ] {
        assert_eq!(
            parts(text),
            Ok((user.map(str::to_owned), host.to_owned())),
            "{text}"
        );
    }
}

#[test]
fn options_and_shell_text_are_refused() {
    use DestinationError as E;
    for (text, error) in [
        ("", E::Missing("the host")),
        ("ann@", E::Missing("the host")),
        ("@host", E::Missing("the user before the @")),
        (
            "-oProxyCommand=id",
            E::LooksLikeOption("-oProxyCommand=id".into()),
        ),
        (
            "ann@-oProxyCommand=id",
            E::LooksLikeOption("-oProxyCommand=id".into()),
        ),
        ("-l@host", E::LooksLikeOption("-l".into())),
        ("ann@host;id", E::Character(';')),
        ("ann@$(id)", E::Character('$')),
        ("`id`@host", E::Character('`')),
        ("a b@host", E::Character(' ')),
        ("ann@ho\nst", E::Character('\n')),
        ("ann@ho\0st", E::Character('\0')),
        ("%r@host", E::Character('%')),
        ("ann@%h", E::Character('%')),
        ("ann\\@host", E::Character('\\')),
        (
            "ann@host:22",
            E::PortInHost {
                host: "host".into(),
                port: "22".into(),
            },
        ),
        ("ann@a:b:c", E::NotIpv6("a:b:c".into())),
        ("ann@[host]", E::NotIpv6("host".into())),
    ] {
        assert_eq!(parts(text), Err(error), "{text:?}");
    }
    assert_eq!(parts(&"x".repeat(257)), Err(E::TooLong));
}

#[test]
fn jumps_may_have_ports() {
    for good in ["a", "u@a:22,b", "[::1]:22", "::1", "u@a.b,[fe80::1]:2,c"] {
        assert_eq!(good.parse::<Jump>().unwrap().as_str(), good);
    }
    for bad in [
        "", "a,", ",a", "a,-oX=y", "a:0", "a:x", "a:70000", "u@-J", "a b", "a:1:2",
    ] {
        assert!(bad.parse::<Jump>().is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn what_is_accepted_is_harmless_and_means_itself(text in any::<String>()) {
        check(&text)?;
    }

    /// The same near the border: mostly characters that matter.
    #[test]
    fn what_is_nearly_right_is_harmless_too(text in "[-a-c0-3@:.%\\[\\]_+~$;`'\" \\\\\n]{0,12}") {
        check(&text)?;
    }

    #[test]
    fn names_are_kept(user in "[a-z_][a-z0-9_.-]{0,20}", host in "[a-z0-9][a-z0-9.-]{0,30}") {
        let destination: Destination = format!("{user}@{host}").parse().unwrap();
        prop_assert_eq!(destination.user(), Some(user.as_str()));
        prop_assert_eq!(destination.host(), &host);
    }

    #[test]
    fn addresses_are_kept(address in any::<std::net::IpAddr>()) {
        let destination: Destination = address.to_string().parse().unwrap();
        prop_assert_eq!(destination.host(), address.to_string());
    }
}

fn check(text: &str) -> Result<(), TestCaseError> {
    if let Ok(destination) = text.parse::<Destination>() {
        let shown = destination.to_string();
        prop_assert_eq!(shown.parse::<Destination>(), Ok(destination.clone()));
        for part in [destination.user().unwrap_or("x"), destination.host()] {
            prop_assert!(!part.is_empty() && !part.starts_with('-'));
            let bad =
                |c: char| c.is_whitespace() || c.is_control() || "'\"`$;&|<>(){}*?!#,".contains(c);
            prop_assert!(!part.contains(bad), "{}", part);
        }
    }
    if let Ok(jump) = text.parse::<Jump>() {
        prop_assert!(!jump.as_str().starts_with('-'));
        prop_assert!(!jump.as_str().contains(['\n', ' ', ';', '$', '`']));
    }
    Ok(())
}

//! Where to log in, as it is typed. What could be taken for an option or for shell text is refused
//! here, before any program sees it.

use std::{fmt, net::Ipv6Addr, str::FromStr};

/// `[USER@]HOST`; HOST is a name, an address or an alias of the ssh settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    user: Option<String>,
    host: String,
}

impl Destination {
    /// Returns the user, if one was named.
    pub fn user(&self) -> Option<&str> {
        self.user.as_deref()
    }

    /// Returns the host without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }
}

impl FromStr for Destination {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Destination, DestinationError> {
        // Names of users may have an `@` themselves (`ann@example.org@host`).
        let (user, host) = match text.rsplit_once('@') {
            Some((user, host)) => (Some(user), host),
            None => (None, text),
        };
        let user = user.map(parse_user).transpose()?;
        let host = parse_host(host)?;
        Ok(Destination { user, host })
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.host)
    }
}

/// `[USER@]HOST[:PORT],…`: the hosts on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Jump(String);

impl Jump {
    /// Returns it as ssh takes it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the first host on the way, and its port if one is named.
    pub fn first(&self) -> (&str, Option<&str>) {
        let hop = self.0.split(',').next().unwrap_or(&self.0);
        match hop.rsplit_once(':') {
            Some((host, port)) if host.ends_with(']') || !host.contains(':') => (host, Some(port)),
            _ => (hop, None),
        }
    }
}

impl FromStr for Jump {
    type Err = DestinationError;

    fn from_str(text: &str) -> Result<Jump, DestinationError> {
        for hop in text.split(',') {
            let (user, place) = match hop.rsplit_once('@') {
                Some((user, place)) => (Some(user), place),
                None => (None, hop),
            };
            user.map(parse_user).transpose()?;
            let host = match place.rsplit_once(':') {
                // The last group of an address without brackets is no port.
                Some((host, port)) if host.ends_with(']') || !host.contains(':') => {
                    port.parse::<u16>()
                        .ok()
                        .filter(|port| *port > 0)
                        .ok_or_else(|| DestinationError::NoPort(port.to_owned()))?;
                    host
                }
                _ => place,
            };
            parse_host(host)?;
        }
        Ok(Jump(text.to_owned()))
    }
}

/// Why a destination is none.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DestinationError {
    /// Nothing before or after the `@`.
    #[error("{0} is missing: write [USER@]HOST")]
    Missing(&'static str),
    /// It would be taken for an option.
    #[error("`{0}` starts with a dash: neither users nor hosts do")]
    LooksLikeOption(String),
    /// A character that names do not have.
    #[error("{0:?} is in no name of a user or host")]
    Character(char),
    /// `host:22`.
    #[error("`{host}:{port}`: give the port with `-p {port}`")]
    PortInHost {
        /// The part before the colon.
        host: String,
        /// The part after it.
        port: String,
    },
    /// Colons, but no IPv6 address.
    #[error("`{0}` is no IPv6 address")]
    NotIpv6(String),
    /// What follows the colon of a jump host.
    #[error("`{0}` is not a port (1 to 65535)")]
    NoPort(String),
    /// Longer than any name.
    #[error("the name has more than {MAX_LEN} bytes")]
    TooLong,
}

fn parse_user(user: &str) -> Result<String, DestinationError> {
    check(user, "the user before the @", "._-+@\\")?;
    Ok(user.to_owned())
}

fn parse_host(host: &str) -> Result<String, DestinationError> {
    let inner = host
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let bare = inner.unwrap_or(host);
    check(bare, "the host", "._-+:%")?;
    // A zone (`%eth0`) belongs to the address.
    let address = bare.split('%').next().unwrap_or(bare);
    if address.parse::<Ipv6Addr>().is_ok() {
        return Ok(bare.to_owned());
    }
    if inner.is_some() {
        return Err(DestinationError::NotIpv6(bare.to_owned()));
    }
    match bare.split_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            Err(DestinationError::PortInHost {
                host: host.to_owned(),
                port: port.to_owned(),
            })
        }
        Some(_) => Err(DestinationError::NotIpv6(bare.to_owned())),
        None if bare.contains('%') => Err(DestinationError::Character('%')),
        None => Ok(bare.to_owned()),
    }
}

/// Accepts letters, digits and the `marks`, so that nothing a shell or ssh's own `%` sequences would
/// act on comes through: proxy commands of the settings contain these names.
fn check(name: &str, what: &'static str, marks: &str) -> Result<(), DestinationError> {
    if name.is_empty() {
        return Err(DestinationError::Missing(what));
    }
    if name.len() > MAX_LEN {
        return Err(DestinationError::TooLong);
    }
    if name.starts_with('-') {
        return Err(DestinationError::LooksLikeOption(name.to_owned()));
    }
    let strange = |c: &char| !c.is_alphanumeric() && !marks.contains(*c);
    if let Some(strange) = name.chars().find(strange) {
        return Err(DestinationError::Character(strange));
    }
    // ssh refuses it, and a shell would join it with what follows.
    if name.ends_with('\\') {
        return Err(DestinationError::Character('\\'));
    }
    Ok(())
}

/// The longest host name of DNS is 253 bytes, the longest user name of Linux 256.
const MAX_LEN: usize = 256;

//! A port of this machine that leads to one of the host.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    str::FromStr,
};

use openssh::ForwardType;

use crate::{Error, Interrupt, control::Control};

/// `[LOCAL[:REMOTE]]`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forward {
    /// Port of this machine; none for the first that is free.
    pub local: Option<u16>,
    /// Port of the host, on its own loopback address.
    pub remote: u16,
}

impl Default for Forward {
    fn default() -> Forward {
        Forward {
            local: None,
            remote: SERVER_PORT,
        }
    }
}

impl FromStr for Forward {
    type Err = ForwardError;

    fn from_str(text: &str) -> Result<Forward, ForwardError> {
        let (local, remote) = match text.split_once(':') {
            Some((local, remote)) => (local, Some(remote)),
            None => (text, None),
        };
        let port = |text: &str| match text.parse() {
            Ok(0) | Err(_) => Err(ForwardError(text.to_owned())),
            Ok(port) => Ok(port),
        };
        Ok(Forward {
            local: Some(port(local)?),
            remote: remote.map_or(Ok(SERVER_PORT), port)?,
        })
    }
}

/// What is written is no port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a port (1 to 65535); write LOCAL or LOCAL:REMOTE, after the host")]
pub struct ForwardError(String);

/// A tunnel from a port that nobody chose, to see who answers at its other end.
///
/// The tunnel that is wanted cannot tell: from the server's own port to a host that is this machine,
/// where no server runs, it leads to itself.
pub struct Probe {
    local: SocketAddr,
    remote: SocketAddr,
}

impl Probe {
    /// Opens it.
    pub async fn open(
        control: &Control,
        forward: Forward,
        interrupt: &mut Interrupt,
    ) -> Result<Probe, Error> {
        let none = |error: std::io::Error| Error::NoTunnel(error.to_string());
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(none)?;
        let local = listener.local_addr().map_err(none)?;
        drop(listener);
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, forward.remote));
        let steps = control.steps();
        let opened = steps.request_port_forward(ForwardType::Local, local, remote);
        interrupt.unless(opened).await?.map_err(no_tunnel)?;
        Ok(Probe { local, remote })
    }

    /// Returns its port on this machine.
    pub fn port(&self) -> u16 {
        self.local.port()
    }

    /// Closes it.
    pub async fn close(self, control: &Control, interrupt: &mut Interrupt) -> Result<(), Error> {
        let steps = control.steps();
        let closed = steps.close_port_forward(ForwardType::Local, self.local, self.remote);
        interrupt.unless(closed).await?.map_err(no_tunnel)
    }
}

/// Opens the tunnel; returns the local port.
pub async fn open(
    control: &Control,
    forward: Forward,
    interrupt: &mut Interrupt,
) -> Result<u16, Error> {
    let candidates: Vec<u16> = match forward.local {
        Some(port) => vec![port],
        // The server's own port, so that clients need no other address; else the next that is free.
        None => (SERVER_PORT..SERVER_PORT + MAX_TRIES).collect(),
    };
    let mut refused = Error::PortTaken(candidates[0]);
    for port in candidates {
        let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpListener::bind(local) {
            Ok(free) => drop(free),
            Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => continue,
            Err(error) => return Err(Error::NoTunnel(format!("{local}: {error}"))),
        }
        let remote = SocketAddr::from((Ipv4Addr::LOCALHOST, forward.remote));
        let steps = control.steps();
        let opened = steps.request_port_forward(ForwardType::Local, local, remote);
        match interrupt.unless(opened).await? {
            Ok(()) => return Ok(port),
            Err(error) => refused = no_tunnel(error),
        }
    }
    Err(refused)
}

fn no_tunnel(error: openssh::Error) -> Error {
    let why = std::error::Error::source(&error).map(ToString::to_string);
    Error::NoTunnel(why.unwrap_or_else(|| error.to_string()))
}

/// The port of a server of ours.
const SERVER_PORT: u16 = 11434;
const MAX_TRIES: u16 = 50;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_read() {
        let forward = |text: &str| text.parse::<Forward>().map(|f| (f.local, f.remote));
        assert_eq!(forward("8080"), Ok((Some(8080), 11434)));
        assert_eq!(forward("8080:80"), Ok((Some(8080), 80)));
        for bad in ["", "0", "bob@h", "1:2:3", ":80", "80:", "65536", "-1"] {
            assert!(forward(bad).is_err(), "{bad}");
        }
    }
}

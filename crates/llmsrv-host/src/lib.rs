//! The server as a program of its machine: which processes of it run, on which addresses the machine
//! can be reached, what load the machine bears, and how the server becomes a service that its firewall
//! lets through.
//!
//! What changes the machine is a [`plan`]: data that is shown or carried out.
//!
//! Nothing here prints, and nothing knows models or requests.

#![forbid(unsafe_code)]

pub mod background;
pub mod command;
pub mod firewall;
pub mod follow;
pub mod instance;
pub mod net;
pub mod plan;
pub mod sockets;
pub mod stress;
pub mod systemd;
pub mod unit;

use std::path::Path;

use nix::unistd::{AccessFlags, Gid, Group, User, access, geteuid};

/// Tells whether this process may do everything.
pub fn is_root() -> bool {
    geteuid().is_root()
}

/// Tells whether this user may make files in a folder, or in the one above it which exists.
pub fn may_write(folder: &Path) -> bool {
    let existing = folder.ancestors().find(|folder| folder.exists());
    existing.is_some_and(|folder| access(folder, AccessFlags::W_OK).is_ok())
}

/// An account of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number.
    pub uid: u32,
    /// Name of its first group.
    pub group: String,
}

impl Account {
    /// Finds an account by its name.
    pub fn find(name: &str) -> Option<Account> {
        User::from_name(name).ok().flatten().map(Account::of)
    }

    /// Returns the one of this process.
    pub fn this() -> Option<Account> {
        User::from_uid(geteuid()).ok().flatten().map(Account::of)
    }

    fn of(user: User) -> Account {
        let group = |gid: Gid| Group::from_gid(gid).ok().flatten();
        Account {
            uid: user.uid.as_raw(),
            group: group(user.gid).map_or_else(|| user.gid.to_string(), |group| group.name),
            name: user.name,
        }
    }
}

/// Tells whether this machine has a group.
pub fn has_group(name: &str) -> bool {
    Group::from_name(name).ok().flatten().is_some()
}

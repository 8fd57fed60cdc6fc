//! The way in: keys first; where the host refuses them, the key is copied with one password; the
//! connection that results carries the session.

use std::path::{Path, PathBuf};

use crate::{
    Error, Interrupt, Ssh,
    control::{Control, Purpose, Way},
    install::{Installed, install},
    key::{self, Identity, PublicKey},
    known_errors::KnownError,
    ssh::Settings,
};

/// What a login needs to know of this machine.
#[derive(Clone, Debug)]
pub struct Surroundings {
    /// The user's home directory.
    pub home: PathBuf,
    /// The folder for sockets, such as `/tmp`.
    pub sockets: PathBuf,
    /// Whether ssh can ask: there is a terminal, or a program that asks.
    pub can_ask: bool,
}

/// What happens on the way, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// The public half of a key is at hand.
    Key {
        /// Its file.
        public: PathBuf,
        /// How it was come by.
        key: PublicKey,
    },
    /// The agent's keys were too many; the next try is with this one alone.
    OneKeyOnly(PathBuf),
    /// ssh asks for a password now, so that the key can be copied.
    AskingToCopy(PathBuf),
    /// The host takes no keys: ssh asks for what it takes, and nothing is copied.
    NoKeysThere,
    /// The key was copied, or was there.
    Copied(Installed),
    /// The key is there and works.
    Works,
    /// The key has a passphrase and is in no agent, so that it was not tried.
    Encrypted(PathBuf),
    /// The key is there, and the host refuses it all the same.
    StillRefused,
}

/// A login in progress.
pub struct Login<'a> {
    /// Where to.
    pub ssh: &'a Ssh,
    /// What ssh's settings say about it.
    pub settings: &'a Settings,
    /// From where.
    pub surroundings: &'a Surroundings,
    /// Who may end it.
    pub interrupt: &'a mut Interrupt,
    /// Who is told.
    pub tell: &'a mut dyn FnMut(Event),
}

impl Login<'_> {
    /// Logs in for a session; copies the key if the host refuses all that need no question.
    pub async fn session(&mut self) -> Result<Control, Error> {
        let ssh = with_key_elsewhere(self.ssh, self.settings, &self.surroundings.home);
        let methods = match self.with_keys(&ssh, Purpose::Session).await? {
            Ok(control) => return Ok(control),
            Err(methods) => methods,
        };
        if !methods.iter().any(|method| method == "publickey") {
            if !self.surroundings.can_ask {
                return Err(KnownError::Denied { methods }.into());
            }
            (self.tell)(Event::NoKeysThere);
            return self.connect(self.ssh, Way::Any, Purpose::Session).await;
        }
        let (identity, key) = self.key()?;
        self.copy(&identity, &key, &methods).await
    }

    /// Sees to it that the host takes the key, and ends the connection.
    pub async fn copy_only(&mut self) -> Result<(), Error> {
        let (identity, key) = self.key()?;
        let file = file(&identity);
        let with_key = self.ssh.with_only(&file);
        let methods = match self.with_keys(&with_key, Purpose::Proof).await? {
            Ok(control) if control.is_opened_by(&key) => {
                (self.tell)(Event::Works);
                return Ok(());
            }
            Ok(control) => {
                return self.install(&control, &file, &key).await.and_then(proven);
            }
            Err(methods) => methods,
        };
        // Another key may open the door.
        if self.ssh.identity.is_none()
            && let Ok(control) = self.connect(self.ssh, Way::Batch, Purpose::Proof).await
        {
            return self.install(&control, &file, &key).await.and_then(proven);
        }
        let control = self.password(&identity, &methods).await?;
        self.install(&control, &file, &key).await.and_then(proven)
    }

    /// Tries what needs no question, and on a terminal what is only about keys. Returns the methods
    /// that the host would take if it refuses.
    async fn with_keys(
        &mut self,
        ssh: &Ssh,
        purpose: Purpose,
    ) -> Result<Result<Control, Vec<String>>, Error> {
        let identity = self.identity();
        let can_ask = self.surroundings.can_ask;
        let mut tried = self.connect(ssh, Way::Batch, purpose).await;
        if can_ask
            && matches!(
                tried,
                Err(Error::KnownError(KnownError::HostKeyUnknown { .. }))
            )
        {
            tried = self.connect(ssh, Way::Keys, purpose).await;
        }
        if let Err(Error::KnownError(KnownError::TooManyKeys)) = &tried
            && ssh.identity.is_none()
            && identity.private.exists()
        {
            let file = file(&identity);
            (self.tell)(Event::OneKeyOnly(file.clone()));
            tried = self
                .connect(&ssh.with_only(&file), Way::Batch, purpose)
                .await;
        }
        if can_ask
            && matches!(tried, Err(Error::KnownError(KnownError::Denied { .. })))
            && identity.private.exists()
            && identity.inspect().is_ok_and(|key| key.is_encrypted)
        {
            let file = file(&identity);
            tried = self
                .connect(&ssh.with_only(&file), Way::Keys, purpose)
                .await;
        }
        match tried {
            Ok(control) => Ok(Ok(control)),
            // Another key than the one to copy may be as it is.
            Err(Error::KnownError(KnownError::KeyTooOpen { path, methods }))
                if path != identity.private =>
            {
                Ok(Err(methods))
            }
            Err(Error::KnownError(KnownError::Denied { methods })) => Ok(Err(methods)),
            Err(error) => Err(error),
        }
    }

    /// Copies the key over a connection with a password, which then is the session's.
    async fn copy(
        &mut self,
        identity: &Identity,
        key: &PublicKey,
        methods: &[String],
    ) -> Result<Control, Error> {
        let control = self.password(identity, methods).await?;
        let file = file(identity);
        // A host that refuses the key still let the user in.
        self.install(&control, &file, key).await?;
        Ok(control)
    }

    async fn password(
        &mut self,
        identity: &Identity,
        methods: &[String],
    ) -> Result<Control, Error> {
        let asks = ["password", "keyboard-interactive"];
        if !methods.iter().any(|method| asks.contains(&method.as_str())) {
            return Err(Error::OnlyKeys {
                public: identity.public.clone(),
            });
        }
        if !self.surroundings.can_ask {
            return Err(Error::NoTerminal);
        }
        (self.tell)(Event::AskingToCopy(identity.public.clone()));
        self.connect(self.ssh, Way::Password, Purpose::Session)
            .await
    }

    /// Appends the key and proves that it opens the door; tells whether it does, as far as can be
    /// seen without a question.
    async fn install(
        &mut self,
        control: &Control,
        file: &Path,
        key: &PublicKey,
    ) -> Result<bool, Error> {
        let installed = install(control, &key.line, self.interrupt).await?;
        (self.tell)(Event::Copied(installed));
        let with_key = self.ssh.with_only(file);
        match self.connect(&with_key, Way::Batch, Purpose::Proof).await {
            Ok(control) if control.is_opened_by(key) => Ok(true),
            Ok(_) | Err(Error::KnownError(_)) if key.is_encrypted => {
                (self.tell)(Event::Encrypted(file.to_owned()));
                Ok(true)
            }
            Ok(_) | Err(Error::KnownError(_)) => {
                (self.tell)(Event::StillRefused);
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    async fn connect(&mut self, ssh: &Ssh, way: Way, purpose: Purpose) -> Result<Control, Error> {
        let sockets = &self.surroundings.sockets;
        Control::connect(ssh, self.settings, way, purpose, sockets, self.interrupt).await
    }

    fn key(&mut self) -> Result<(Identity, PublicKey), Error> {
        let identity = self.identity();
        let key = identity.ensure(&key::comment())?;
        (self.tell)(Event::Key {
            public: identity.public.clone(),
            key: key.clone(),
        });
        Ok((identity, key))
    }

    fn identity(&self) -> Identity {
        let named = self.ssh.identity.as_deref();
        Identity::choose(named, self.settings, &self.surroundings.home)
    }
}

/// Returns the login with a key that ssh does not find by itself, if there is one.
pub(crate) fn with_key_elsewhere(ssh: &Ssh, settings: &Settings, home: &Path) -> Ssh {
    let uid = nix::unistd::Uid::current();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let home_of_ssh = user.map(|user| user.dir).unwrap_or_default();
    let file = file(&Identity::choose(ssh.identity.as_deref(), settings, home));
    let mut names = settings.identity_files.iter();
    let is_found =
        names.any(|name| file == Path::new(name)) || home_of_ssh == home || !file.starts_with(home);
    Ssh {
        elsewhere: (!is_found && file.exists()).then_some(file),
        ..ssh.clone()
    }
}

/// Returns the file that ssh takes for a key: the public half if the private one is elsewhere.
fn file(identity: &Identity) -> PathBuf {
    if identity.private.exists() {
        identity.private.clone()
    } else {
        identity.public.clone()
    }
}

fn proven(works: bool) -> Result<(), Error> {
    if works {
        Ok(())
    } else {
        Err(Error::StillRefused)
    }
}

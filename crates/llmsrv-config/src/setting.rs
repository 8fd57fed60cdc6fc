//! What is said of each setting.

/// A table of the settings file, and a struct of [`crate::Config`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// `[server]`
    Server,
    /// `[client]`
    Client,
    /// `[host]`
    Host,
    /// `[logkit]`
    Logkit,
}

impl Section {
    /// All sections in the order of the documents.
    pub const ALL: [Section; 4] = [
        Section::Server,
        Section::Client,
        Section::Host,
        Section::Logkit,
    ];

    /// Returns the name of the section in the settings file.
    pub const fn name(self) -> &'static str {
        match self {
            Section::Server => "server",
            Section::Client => "client",
            Section::Host => "host",
            Section::Logkit => "logkit",
        }
    }
}

/// What a value looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On or off.
    Switch,
    /// 0, 1 (debug) or 2 (trace); words for on and off count too.
    Verbosity,
    /// A whole number between two others.
    Integer {
        /// Smallest value.
        min: i64,
        /// Largest value.
        max: i64,
    },
    /// A time such as `5m`; bare numbers are seconds, negative ones mean forever.
    Duration,
    /// A size such as `8GiB`.
    Bytes,
    /// So many in a time, such as `60/min`.
    Rate,
    /// Where a server listens.
    Address,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Any text.
    Text,
    /// Texts between commas.
    List,
    /// Texts between commas; `\,` is a comma inside a text.
    EscapedList,
    /// A file or folder; a leading `~` is the home directory.
    Path,
}

impl Kind {
    /// Describes the kind for documents and errors.
    pub fn name(self) -> String {
        match self {
            Kind::Switch => "true or false".into(),
            Kind::Verbosity => "0, 1 or 2".into(),
            Kind::Integer { min, max } if max >= LARGE => format!("a whole number from {min}"),
            Kind::Integer { min, max } => format!("a whole number from {min} to {max}"),
            Kind::Duration => "a time".into(),
            Kind::Bytes => "a size".into(),
            Kind::Rate => "a rate".into(),
            Kind::Address => "an address".into(),
            Kind::Choice(words) => format!("one of {}", words.join(", ")),
            Kind::Text => "a text".into(),
            Kind::List | Kind::EscapedList => "a list".into(),
            Kind::Path => "a path".into(),
        }
    }
}

/// How much of a value may be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Redaction {
    /// All of it.
    Open,
    /// Nothing.
    Hidden,
    /// Of URLs only scheme and host; the rest is open.
    Urls,
}

/// Whether the setting has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has an effect.
    Active,
    /// None but a warning where it is set to another value than the default: it is known since programs that
    /// this one replaces have it, or to say what cannot be done. The text says why.
    Ignored(&'static str),
}

/// When a running server takes up a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// When it is told to read its settings again.
    Reload,
    /// When it is started again.
    Restart,
}

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Setting {
    /// Name of the environment variable; also the identity of the row.
    pub name: &'static str,
    /// Variables read when `name` is not set, best first.
    pub aliases: &'static [&'static str],
    /// Section of the settings file.
    pub section: Section,
    /// Key in its section; empty = cannot be set in a file.
    pub key: &'static str,
    /// What a value looks like.
    pub kind: Kind,
    /// Value when nothing is said, in the form of the variable; empty = unset.
    pub default: &'static str,
    /// How much of a value may be shown.
    pub secrecy: Redaction,
    /// Whether it has an effect.
    pub status: Status,
    /// When a running server takes up a change.
    pub change: Change,
    /// One line for people.
    pub help: &'static str,
}

impl Setting {
    /// Returns `section.key`, or nothing for rows that no file can set.
    pub fn path(&self) -> Option<String> {
        (!self.key.is_empty()).then(|| format!("{}.{}", self.section.name(), self.key))
    }

    /// Returns the variables that set it, strongest first.
    pub fn variables(&self) -> impl Iterator<Item = &'static str> {
        std::iter::once(self.name).chain(self.aliases.iter().copied())
    }

    pub(crate) const fn alias(self, aliases: &'static [&'static str]) -> Setting {
        Setting { aliases, ..self }
    }

    pub(crate) const fn hidden(self) -> Setting {
        Setting {
            secrecy: Redaction::Hidden,
            ..self
        }
    }

    pub(crate) const fn urls(self) -> Setting {
        Setting {
            secrecy: Redaction::Urls,
            ..self
        }
    }

    pub(crate) const fn ignored(self, why: &'static str) -> Setting {
        Setting {
            status: Status::Ignored(why),
            ..self
        }
    }

    pub(crate) const fn live(self) -> Setting {
        Setting {
            change: Change::Reload,
            ..self
        }
    }

    pub(crate) const fn not_in_files(self) -> Setting {
        Setting { key: "", ..self }
    }
}

/// Upper bound of numbers that have no natural one.
pub(crate) const LARGE: i64 = 1 << 31;

//! What can be chosen.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use reqwest::Url;

use crate::Error;

/// Base address of the Hugging Face hub.
const HUB_URL: &str = "https://huggingface.co";

/// Everything that can be chosen.
#[derive(Clone)]
pub struct Settings {
    /// Hosts that may be pulled from and pushed to; `*.example.com` stands for all hosts below.
    /// Empty = all.
    pub allowed: Vec<String>,
    /// Addresses asked before the registry itself when pulling.
    pub mirrors: Vec<Mirror>,
    /// Files of the key that signs requests (OpenSSH, ed25519): the first that exists is used, and
    /// the first of the list is made when none does.
    pub key_files: Vec<PathBuf>,
    /// Base address for names of `hf.co` and `huggingface.co`.
    pub hub_url: Url,
    /// Token of the hub, for repositories that are not public.
    pub hub_token: Option<String>,
    /// Says of the architecture that a model's configuration names why it does not run here: it is then
    /// refused before its weights are received.
    pub refusal: Option<fn(&str) -> Option<String>>,
    /// Sizes and times.
    pub tuning: Tuning,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            allowed: Vec::new(),
            mirrors: Vec::new(),
            key_files: Vec::new(),
            hub_url: Url::parse(HUB_URL).expect("a constant that a test looks at"),
            hub_token: None,
            refusal: None,
            tuning: Tuning::default(),
        }
    }
}

impl Settings {
    pub(crate) fn check(&self, host: &str) -> Result<(), Error> {
        let host = host.to_ascii_lowercase();
        let matches = |pattern: &String| {
            let pattern = pattern.to_ascii_lowercase();
            match pattern.strip_prefix("*.") {
                Some(domain) => host
                    .strip_suffix(domain)
                    .is_some_and(|rest| rest.len() > 1 && rest.ends_with('.')),
                None => host == pattern,
            }
        };
        if self.allowed.is_empty() || self.allowed.iter().any(matches) {
            return Ok(());
        }
        Err(Error::NotAllowed { host })
    }
}

impl fmt::Debug for Settings {
    /// Leaves the token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings")
            .field("allowed", &self.allowed)
            .field("mirrors", &self.mirrors)
            .field("hub_url", &self.hub_url)
            .field("tuning", &self.tuning)
            .finish_non_exhaustive()
    }
}

/// An address to ask instead of a registry, written `host=url`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The registry in names of models.
    pub host: String,
    /// The mirror's base address.
    pub url: Url,
}

impl FromStr for Mirror {
    type Err = String;

    fn from_str(text: &str) -> Result<Mirror, String> {
        let (host, url) = text
            .split_once('=')
            .ok_or_else(|| format!("{text:?} is not of the form HOST=URL"))?;
        let url = Url::parse(url.trim()).map_err(|error| format!("{:?}: {error}", url.trim()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(format!("{url} is no address of a web server"));
        }
        Ok(Mirror {
            host: host.trim().to_ascii_lowercase(),
            url,
        })
    }
}

/// Sizes and times of transfers. The defaults are those of the protocol; tests use smaller ones.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// Smallest size of a part in bytes.
    pub part_min_bytes: u64,
    /// Largest size of a part in bytes.
    pub part_max_bytes: u64,
    /// Parts of a blob that are received at the same time, and parts a blob is divided into where
    /// the sizes allow.
    pub parallel: usize,
    /// Failures in a row, without a byte between them, before a part is given up.
    pub retries: u32,
    /// Pause after the first failure; it doubles each time.
    pub backoff: Duration,
    /// How long a transfer may be silent before it is begun again.
    pub stall: Duration,
    /// How long a registry may take to answer when it has all bytes of a blob or a part: it may hash them, or copy
    /// them to its storage.
    pub commit: Duration,
    /// How long connecting may take.
    pub connect: Duration,
}

impl Default for Tuning {
    fn default() -> Tuning {
        Tuning {
            part_min_bytes: 100_000_000,
            part_max_bytes: 1_000_000_000,
            parallel: 16,
            retries: 6,
            backoff: Duration::from_secs(1),
            stall: Duration::from_secs(30),
            commit: Duration::from_hours(1),
            connect: Duration::from_secs(10),
        }
    }
}

impl Tuning {
    /// Returns the size of the parts of a blob.
    pub(crate) fn part_bytes(&self, size_bytes: u64) -> u64 {
        let share = size_bytes / self.parallel.max(1) as u64;
        share
            .max(self.part_min_bytes)
            .min(self.part_max_bytes)
            .max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_sound() {
        assert_eq!(
            Settings::default().hub_url.as_str(),
            "https://huggingface.co/"
        );
    }

    #[test]
    fn the_list_of_allowed_hosts_is_exact() {
        let settings = Settings {
            allowed: vec!["hf.co".into(), "*.Corp.example".into()],
            ..Settings::default()
        };
        for host in ["hf.co", "HF.CO", "a.corp.example", "a.b.CORP.example"] {
            assert!(settings.check(host).is_ok(), "{host}");
        }
        for host in [
            "registry.ollama.ai",
            "hf.co:444",
            "xhf.co",
            "corp.example",
            ".corp.example",
            "evilcorp.example",
            "a.corp.example.evil",
        ] {
            assert!(settings.check(host).is_err(), "{host}");
        }
        assert!(Settings::default().check("anything").is_ok());
    }

    #[test]
    fn mirrors_are_a_host_and_an_address() {
        let mirror: Mirror = "Registry.Ollama.AI = https://mirror.example/v"
            .parse()
            .unwrap();
        assert_eq!(mirror.host, "registry.ollama.ai");
        assert_eq!(mirror.url.as_str(), "https://mirror.example/v");
        for text in [
            "",
            "host",
            "host=",
            "host=mirror",
            "host=ftp://x",
            "host=file:///x",
        ] {
            assert!(text.parse::<Mirror>().is_err(), "{text}");
        }
    }

    #[test]
    fn parts_have_the_sizes_of_the_protocol() {
        let tuning = Tuning::default();
        assert_eq!(tuning.part_bytes(1), 100_000_000);
        assert_eq!(tuning.part_bytes(3_200_000_000), 200_000_000);
        assert_eq!(tuning.part_bytes(u64::MAX), 1_000_000_000);
    }
}

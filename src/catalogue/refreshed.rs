//! The list of models that `llmsrv search --refresh` keeps: what the hub and registries offered when they were asked.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::PathBuf,
};

use anyhow::Context as _;
use llmsrv_config::Folders;
use llmsrv_registry::Offer;
use serde::{Deserialize, Serialize};

/// Rows that are kept; the oldest ones leave.
const MAX_ROWS: usize = 5000;
const MAX_BYTES: u64 = 16 << 20;

/// The list.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Refreshed {
    /// The day of the last question.
    pub date: String,
    /// What was offered, what was asked for last first.
    pub offers: Vec<Offer>,
}

impl Refreshed {
    /// Reads the list; one that was never made is empty.
    ///
    /// # Errors
    /// If the file cannot be read, or is no such list.
    pub fn read() -> anyhow::Result<Refreshed> {
        let path = path();
        let doing = || format!("cannot read {}", path.display());
        let file = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            file => file.with_context(doing)?,
        };
        let mut bytes = Vec::new();
        let read = file.take(MAX_BYTES).read_to_end(&mut bytes);
        read.with_context(doing)?;
        serde_json::from_slice(&bytes).with_context(doing)
    }

    /// Puts offers in front, in the place of older ones of the same models.
    pub fn add(&mut self, date: String, offers: Vec<Offer>) {
        let models: std::collections::HashSet<String> =
            offers.iter().map(|it| model(&it.name).to_owned()).collect();
        self.offers.retain(|it| !models.contains(model(&it.name)));
        self.offers.splice(0..0, offers);
        self.offers.truncate(MAX_ROWS);
        self.date = date;
    }

    /// Writes the list as a whole.
    ///
    /// # Errors
    /// If its folder cannot be written to.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = path();
        let doing = || format!("cannot write {}", path.display());
        let folder = path.parent().with_context(doing)?;
        fs::create_dir_all(folder).with_context(doing)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(doing)?;
        file.write_all(&serde_json::to_vec(self)?)
            .with_context(doing)?;
        file.persist(&path).with_context(doing)?;
        Ok(())
    }
}

/// Returns the name without its tag.
pub fn model(name: &str) -> &str {
    match name.rsplit_once(':') {
        Some((model, tag)) if !tag.contains('/') => model,
        _ => name,
    }
}

fn path() -> PathBuf {
    Folders::from_process().data.join("catalogue.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_offers_take_the_place_of_older_ones() {
        let offers = |names: &[&str]| -> Vec<Offer> {
            let offer = |name: &&str| Offer {
                name: (*name).to_owned(),
                ..Offer::default()
            };
            names.iter().map(offer).collect()
        };
        let mut list = Refreshed::default();
        list.add(
            "1".into(),
            offers(&["h:5000/a/b:Q4", "h:5000/a/b:Q8", "h/c/d:x"]),
        );
        list.add("2".into(), offers(&["h:5000/a/b:Q5", "h/e/f"]));
        let names: Vec<&str> = list.offers.iter().map(|it| it.name.as_str()).collect();
        assert_eq!(names, ["h:5000/a/b:Q5", "h/e/f", "h/c/d:x"]);
        let many: Vec<String> = (0..=MAX_ROWS).map(|idx| format!("h/a/{idx}:x")).collect();
        list.add(
            "3".into(),
            offers(&many.iter().map(String::as_str).collect::<Vec<_>>()),
        );
        assert_eq!((list.date.as_str(), list.offers.len()), ("3", MAX_ROWS));
    }
}

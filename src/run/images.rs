//! Images for a model that sees: named by an option, or by their paths in a prompt.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};

/// Largest image, in bytes.
const MAX_IMAGE: u64 = 32 << 20;

/// A prompt, and the images it names.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// What is left of the text.
    pub text: String,
    /// Files, in their order.
    pub files: Vec<PathBuf>,
    /// What looks like the path of an image and is no file.
    pub missing: Vec<String>,
}

/// Finds the paths of images in a prompt: a word that ends as image files do and is one. Blanks of a
/// path have a backslash before them, or quotes around it, as terminals write what is dropped there.
pub fn find(prompt: &str) -> Seen {
    let mut seen = Seen::default();
    let mut rest = prompt;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start().len();
        let (before, from) = rest.split_at(blanks);
        let (word, length) = word(from);
        let path = Path::new(&word);
        let (raw, after) = from.split_at(length);
        if is_image_name(path) && path.is_file() {
            seen.files.push(path.to_owned());
        } else {
            if is_image_name(path) && word.starts_with(['.', '/', '~']) {
                seen.missing.push(word);
            }
            seen.text += before;
            seen.text += raw;
        }
        rest = after;
    }
    if !seen.files.is_empty() {
        seen.text = seen.text.trim().to_owned();
    }
    seen
}

/// Reads an image as requests carry it.
pub fn read(path: &Path) -> Result<String, String> {
    let wrong = |why: &dyn std::fmt::Display| format!("cannot use {}: {why}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| wrong(&error))?;
    file.take(MAX_IMAGE + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| wrong(&error))?;
    if bytes.len() as u64 > MAX_IMAGE {
        return Err(wrong(&"it is larger than 32 MiB"));
    }
    Ok(BASE64_STANDARD.encode(bytes))
}

fn is_image_name(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    ending.is_some_and(|ending| {
        let known = ["png", "jpg", "jpeg", "webp", "gif", "bmp"];
        known.iter().any(|known| ending.eq_ignore_ascii_case(known))
    })
}

/// Returns the first word, without its quotes and backslashes, and how many bytes it takes.
fn word(text: &str) -> (String, usize) {
    let quote = text.chars().next().filter(|c| matches!(c, '\'' | '"'));
    if let Some(quote) = quote
        && let Some(end) = text.get(1..).and_then(|rest| rest.find(quote))
    {
        let inside = text.get(1..=end).unwrap_or_default();
        return (inside.to_owned(), end + 2);
    }
    let mut word = String::new();
    let mut chars = text.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => match chars.next() {
                Some((_, next)) => word.push(next),
                None => word.push(c),
            },
            c if c.is_whitespace() => return (word, at),
            c => word.push(c),
        }
    }
    (word, text.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn paths_of_images_are_found_in_prompts() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["a.png", "my photo.JPG", "notes.txt"] {
            std::fs::write(path(name), "x").unwrap();
        }
        let (a, photo, notes) = (path("a.png"), path("my photo.JPG"), path("notes.txt"));
        let shown = |path: &Path| path.display().to_string();
        let escaped = shown(&photo).replace(' ', "\\ ");
        let prompt = format!("compare {} and '{}' please", shown(&a), shown(&photo));
        let seen = find(&prompt);
        assert_eq!(seen.files, [a.clone(), photo.clone()]);
        assert_eq!(seen.text, "compare and please");
        assert_eq!(find(&escaped).files, [photo]);
        let prompt = format!("{} x.png ./gone.png  a\\nb", shown(&notes));
        let seen = find(&prompt);
        assert_eq!((seen.text.as_str(), seen.files.len()), (prompt.as_str(), 0));
        assert_eq!(seen.missing, ["./gone.png"]);
        assert_eq!(read(&a).unwrap(), "eA==");
        assert!(read(&path("none.png")).unwrap_err().contains("none.png"));
    }

    proptest! {
        #[test]
        fn prompts_without_images_stay_as_they_are(prompt in "\\PC{0,40}|[ \n'\"\\\\a-z.]{0,40}") {
            prop_assert_eq!(find(&prompt).text, prompt);
        }
    }
}

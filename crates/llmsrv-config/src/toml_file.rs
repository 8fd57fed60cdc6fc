//! The settings file: TOML with one table for each section.

use std::path::Path;

use toml::de::{DeTable, DeValue};

use crate::{
    Error, Origin, SETTINGS, Section, Setting, TextFile, nearest, origin::Entry, upstream,
    value::Raw,
};

/// Reads the file; what is wrong goes to `errors`, what is right is returned.
pub(crate) fn entries(file: &TextFile, errors: &mut Vec<Error>) -> Vec<Entry> {
    let (document, syntax) = DeTable::parse_recoverable(&file.text);
    if !syntax.is_empty() {
        // After a syntax error keys may be torn; only the syntax is reported.
        errors.extend(syntax.into_iter().map(|error| Error::Syntax {
            path: file.path.clone(),
            line: error.span().map_or(1, |span| file.line_of(span.start)),
            message: error.message().replace('\n', " "),
        }));
        return Vec::new();
    }
    let mut entries = Vec::new();
    for (name, table) in document.get_ref() {
        if name.get_ref() == upstream::SECTION {
            continue; // not a row of the table of settings: there may be many of them
        }
        let line = file.line_of(name.span().start);
        let section = Section::ALL
            .iter()
            .find(|section| section.name() == name.get_ref());
        match (section, table.get_ref()) {
            (Some(section), DeValue::Table(table)) => {
                for (key, value) in table {
                    let line = file.line_of(key.span().start);
                    match find(*section, key.get_ref()) {
                        Some(setting) => match raw(value.get_ref()) {
                            Ok(raw) => entries.push(Entry {
                                setting,
                                name: format!(
                                    "{name}.{key}",
                                    name = section.name(),
                                    key = key.get_ref()
                                ),
                                raw,
                                origin: Origin::File {
                                    path: file.path.clone(),
                                    line,
                                },
                            }),
                            Err(problem) => errors.push(Error::BadValue {
                                origin: Origin::File {
                                    path: file.path.clone(),
                                    line,
                                },
                                name: format!("{}.{}", section.name(), key.get_ref()),
                                problem,
                            }),
                        },
                        None => {
                            errors.push(unknown(&file.path, line, Some(*section), key.get_ref()));
                        }
                    }
                }
            }
            (Some(section), other) => errors.push(Error::BadValue {
                origin: Origin::File {
                    path: file.path.clone(),
                    line,
                },
                name: section.name().to_owned(),
                problem: format!("must be a table, not {}", other.type_str()),
            }),
            (None, _) => errors.push(unknown(&file.path, line, None, name.get_ref())),
        }
    }
    entries
}

fn find(section: Section, key: &str) -> Option<&'static Setting> {
    SETTINGS
        .iter()
        .find(|setting| setting.section == section && !setting.key.is_empty() && setting.key == key)
}

/// Turns a TOML value into the text the value parsers read.
fn raw(value: &DeValue<'_>) -> Result<Raw, String> {
    match value {
        DeValue::Array(items) => {
            let items = items
                .iter()
                .map(|item| scalar(item.get_ref()))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Raw::List(items))
        }
        value => scalar(value).map(Raw::Text),
    }
}

fn scalar(value: &DeValue<'_>) -> Result<String, String> {
    match value {
        DeValue::String(text) => Ok(text.to_string()),
        DeValue::Boolean(on) => Ok(on.to_string()),
        DeValue::Float(number) => Ok(number.as_str().to_owned()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(|number| number.to_string())
            .map_err(|_| format!("has the number {number}, which is too large")),
        other => Err(format!("must be a plain value, not {}", other.type_str())),
    }
}

fn unknown(path: &Path, line: usize, section: Option<Section>, key: &str) -> Error {
    let here: Vec<&'static Setting> = SETTINGS
        .iter()
        .filter(|setting| {
            !setting.key.is_empty() && section.is_none_or(|section| setting.section == section)
        })
        .collect();
    let nearest = match section {
        Some(_) => nearest(key, here.iter().map(|setting| setting.key)).map(str::to_owned),
        // A key outside any table: perhaps the table line is missing, perhaps its name is wrong.
        None => nearest(
            key,
            Section::ALL
                .iter()
                .map(|section| section.name())
                .chain([upstream::SECTION]),
        )
        .map(str::to_owned)
        .or_else(|| {
            let near = nearest(key, here.iter().map(|setting| setting.key))?;
            here.iter().find(|setting| setting.key == near)?.path()
        }),
    };
    let key = section.map_or_else(
        || key.to_owned(),
        |section| format!("{}.{key}", section.name()),
    );
    Error::UnknownKey {
        path: path.to_path_buf(),
        line,
        key,
        nearest,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> (Vec<String>, Vec<String>) {
        let file = TextFile {
            path: "c.toml".into(),
            text: text.into(),
        };
        let mut errors = Vec::new();
        let entries = entries(&file, &mut errors);
        errors.sort_by_key(Error::position);
        let entries = entries
            .iter()
            .map(|entry| format!("{} {:?}", entry.name, entry.raw))
            .collect();
        (entries, errors.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn plain_values_become_text() {
        let (entries, errors) = read(
            "[server]\nhost = \":80\"\nmax_queue = 0x10\nnoprune = true\nkeep_alive = 1_000\nload_timeout = 1.5\norigins = [\"a\", 'b']\n",
        );
        assert_eq!(errors, Vec::<String>::new());
        assert_eq!(
            entries,
            [
                "server.host Text(\":80\")",
                "server.keep_alive Text(\"1000\")",
                "server.load_timeout Text(\"1.5\")",
                "server.max_queue Text(\"16\")",
                "server.noprune Text(\"true\")",
                "server.origins List([\"a\", \"b\"])",
            ]
        );
    }

    #[test]
    fn mistakes_name_file_line_and_the_nearest_key() {
        for (text, error) in [
            (
                "[server]\n\nmax_que = 9\n",
                "c.toml:3: unknown setting `server.max_que`; did you mean `max_queue`?",
            ),
            (
                "[sevrer]\nhost = 1\n",
                "c.toml:1: unknown setting `sevrer`; did you mean `server`?",
            ),
            (
                "models = \"x\"\n",
                "c.toml:1: unknown setting `models`; did you mean `server.models`?",
            ),
            (
                "[server]\nzzzzzz = 1\n",
                "c.toml:2: unknown setting `server.zzzzzz`",
            ),
            (
                "[server]\nhost = {a = 1}\n",
                "c.toml:2: server.host must be a plain value, not table",
            ),
            (
                "server = 3\n",
                "c.toml:1: server must be a table, not integer",
            ),
        ] {
            assert_eq!(read(text).1, [error], "{text}");
        }
        let (_, errors) = read("[server]\nhost = \n");
        assert!(errors[0].starts_with("c.toml:2: "), "{errors:?}");
    }

    #[test]
    fn all_mistakes_are_reported_in_the_order_of_lines() {
        let (_, errors) = read("[server]\nzz = 1\naa = 2\n[logkit]\nbb = 3\n");
        let lines: Vec<&str> = errors.iter().map(|error| &error[..8]).collect();
        assert_eq!(lines, ["c.toml:2", "c.toml:3", "c.toml:5"]);
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>(), lines in "([\\[\\]a-z=\"' .0-9{}]{0,15}\n){0,6}") {
            read(&text);
            read(&lines);
        }
    }
}

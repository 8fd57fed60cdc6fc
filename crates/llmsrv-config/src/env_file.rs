//! Files of `NAME=value` lines (`.env`).
//!
//! Accepted: blank lines, `#` comments, an optional `export`, values bare (to the end of the line or
//! to ` #`), in single quotes (as they are) or in double quotes (with `\n \t \r \" \\ \$`). Nothing
//! is expanded: a file of settings is not a program.

/// One assignment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Assignment {
    /// Line number, from 1.
    pub line: usize,
    /// Name of the variable.
    pub name: String,
    /// Its value.
    pub value: String,
}

/// Reads a whole file. A line that is no assignment is reported by its number and what is wrong.
pub(crate) fn parse(text: &str) -> (Vec<Assignment>, Vec<(usize, &'static str)>) {
    let mut assignments = Vec::new();
    let mut mistakes = Vec::new();
    for (line_idx, line) in text.lines().enumerate() {
        let line_number = line_idx + 1;
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        match assignment(line) {
            Ok((name, value)) => assignments.push(Assignment {
                line: line_number,
                name,
                value,
            }),
            Err(mistake) => mistakes.push((line_number, mistake)),
        }
    }
    (assignments, mistakes)
}

fn assignment(line: &str) -> Result<(String, String), &'static str> {
    let line = line.strip_prefix("export ").unwrap_or(line);
    let (name, value) = line
        .split_once('=')
        .ok_or("is not of the form NAME=value")?;
    let name = name.trim();
    let first = name.chars().next();
    if first.is_none_or(|c| c.is_ascii_digit())
        || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    {
        return Err("has no valid name before the `=`");
    }
    Ok((name.to_owned(), unquote(value.trim())?))
}

fn unquote(value: &str) -> Result<String, &'static str> {
    let ended = |rest: &str| rest.trim().is_empty() || rest.trim_start().starts_with('#');
    if let Some(rest) = value.strip_prefix('\'') {
        let (inner, rest) = rest.split_once('\'').ok_or("has an open quote")?;
        return if ended(rest) {
            Ok(inner.to_owned())
        } else {
            Err("has text after the closing quote")
        };
    }
    let Some(rest) = value.strip_prefix('"') else {
        let comment = value.find(" #").unwrap_or(value.len());
        return Ok(if value.starts_with('#') {
            String::new()
        } else {
            value[..comment].trim_end().to_owned()
        });
    };
    let mut inner = String::new();
    let mut chars = rest.chars();
    loop {
        match chars.next().ok_or("has an open quote")? {
            '"' => break,
            '\\' => match chars.next().ok_or("has an open quote")? {
                'n' => inner.push('\n'),
                't' => inner.push('\t'),
                'r' => inner.push('\r'),
                c @ ('"' | '\\' | '$') => inner.push(c),
                other => inner.extend(['\\', other]),
            },
            c => inner.push(c),
        }
    }
    if ended(chars.as_str()) {
        Ok(inner)
    } else {
        Err("has text after the closing quote")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_usual_spellings_are_read() {
        let text = "# comment\n\nA=1\nexport B = two words # note\nC='#raw $X'\nD=\"line\\nbreak \\\"q\\\"\" # x\nE=\nF=a#b\n";
        let (read, mistakes) = parse(text);
        assert_eq!(mistakes, []);
        let read: Vec<_> = read
            .iter()
            .map(|a| (a.line, a.name.as_str(), a.value.as_str()))
            .collect();
        assert_eq!(
            read,
            [
                (3, "A", "1"),
                (4, "B", "two words"),
                (5, "C", "#raw $X"),
                (6, "D", "line\nbreak \"q\""),
                (7, "E", ""),
                (8, "F", "a#b")
            ]
        );
    }

    #[test]
    fn mistakes_are_counted_by_line() {
        let (_, mistakes) = parse("good=1\nbad\n1x=2\ny='open\nz=\"a\"b\n");
        assert_eq!(
            mistakes.iter().map(|(line, _)| *line).collect::<Vec<_>>(),
            [2, 3, 4, 5]
        );
    }

    proptest! {
        #[test]
        fn any_text_is_read_without_panic(text in any::<String>(), lines in "([A-Z =#'\"\\\\n]{0,12}\n){0,5}") {
            parse(&text);
            parse(&lines);
        }

        #[test]
        fn a_quoted_value_reads_back(value in "[^\0\r\n]{0,30}") {
            let text = format!("X=\"{}\"", value.replace('\\', "\\\\").replace('"', "\\\""));
            prop_assert_eq!(&parse(&text).0[0].value, &value);
        }
    }
}

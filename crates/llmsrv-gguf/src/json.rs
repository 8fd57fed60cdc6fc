//! A look at the JSON beside model files before it is parsed: a parsed value takes a hundred times the
//! bytes of `[0]`.

/// Fails if a text nests more than 64 levels deep or has more than `most` values.
///
/// # Errors
/// What it has too much of.
pub fn check(json: &[u8], most: usize) -> Result<(), String> {
    let (mut depth, mut n_values) = (0_usize, 0_usize);
    let mut bytes = json.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => {
                while let Some(byte) = bytes.next() {
                    match byte {
                        b'"' => break,
                        b'\\' => {
                            bytes.next();
                        }
                        _ => {}
                    }
                }
            }
            b'[' | b'{' => {
                depth += 1;
                n_values += 1;
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            b',' => n_values += 1,
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("it nests more than {MAX_DEPTH} levels"));
        }
        if n_values > most {
            return Err(format!("it has more than {most} values"));
        }
    }
    Ok(())
}

const MAX_DEPTH: usize = 64;

#[cfg(test)]
mod tests {
    fn check(json: &[u8]) -> Result<(), String> {
        super::check(json, 4_000_000)
    }

    #[test]
    fn levels_and_values_are_counted() {
        let deep = |n: usize| format!("{}1{}", "[".repeat(n), "]".repeat(n));
        assert_eq!(check(deep(64).as_bytes()), Ok(()));
        assert!(check(deep(65).as_bytes()).is_err());
        assert!(check("{\"a\":".repeat(65).as_bytes()).is_err());
        let text = format!("[{}]", "\"[[\\\",[{\",".repeat(1000));
        assert_eq!(check(text.as_bytes()), Ok(()));
        assert!(check("[0],".repeat(2_000_001).as_bytes()).is_err());
        assert_eq!(check("[0],".repeat(1_999_999).as_bytes()), Ok(()));
        assert_eq!(check(b"]]]\"open"), Ok(()));
    }
}

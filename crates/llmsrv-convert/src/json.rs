//! A look at JSON before it is parsed: a parsed value takes a hundred times the bytes of `[0]`.

/// Fails if a text nests too deeply or has too many values.
pub(crate) fn check(json: &[u8]) -> Result<(), &'static str> {
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
            return Err("it nests more than 64 levels");
        }
        if n_values > MAX_VALUES {
            return Err("it has more than 4 million values");
        }
    }
    Ok(())
}

const MAX_DEPTH: usize = 64;
/// Twice those of the largest published vocabulary.
const MAX_VALUES: usize = 4_000_000;

#[cfg(test)]
mod tests {
    use super::*;

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

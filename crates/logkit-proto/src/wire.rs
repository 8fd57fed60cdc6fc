//! Fields of an encoded message, without decoding them: to count what a message holds before memory
//! is spent on it.

/// What is no encoded message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// The fields of an encoded message, in order: the number of each, and its bytes if it has a length.
#[derive(Clone, Debug)]
pub struct Fields<'a>(&'a [u8]);

/// The number of a field, and its bytes if it has a length.
pub type Field<'a> = (u64, Option<&'a [u8]>);

impl<'a> Fields<'a> {
    /// The fields of that message.
    pub fn new(message: &'a [u8]) -> Fields<'a> {
        Fields(message)
    }

    fn field(&mut self) -> Result<Field<'a>, Malformed> {
        let key = self.varint()?;
        let bytes = match key & 7 {
            0 => {
                self.varint()?;
                None
            }
            1 => {
                self.take(8)?;
                None
            }
            2 => {
                let length = self.varint()?;
                let length = usize::try_from(length).map_err(|_| Malformed)?;
                Some(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                None
            }
            // No message of ours has groups.
            _ => return Err(Malformed),
        };
        Ok((key >> 3, bytes))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(taken)
    }

    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_and_what_is_none_is_refused() {
        let message = [0x08, 0x96, 0x01, 0x12, 2, b'h', b'i', 0x1d, 0, 0, 0, 0];
        let fields: Result<Vec<_>, _> = Fields::new(&message).collect();
        assert_eq!(
            fields,
            Ok(vec![(1, None), (2, Some(&b"hi"[..])), (3, None)])
        );
        for broken in [
            &[0x12, 5, b'x'][..],
            &[0x80],
            &[0x0b],
            &[0xff; 11],
            &[0x09, 1],
        ] {
            assert!(
                Fields::new(broken).any(|field| field.is_err()),
                "{broken:?}"
            );
        }
    }
}

//! Keys and values of a model file, with typed access.

/// Keys and values in file order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<(String, Value)>,
    index: std::collections::HashMap<String, usize>,
}

/// A value of a key.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the types of the format")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

/// Many values of one type.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the types of the format")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    Strings(StringArray),
    Nested(Vec<Array>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

/// Byte strings in one buffer: a vocabulary has hundreds of thousands of them, not always UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Metadata {
    /// Returns no keys at all.
    pub fn new() -> Metadata {
        Metadata::default()
    }

    /// Sets `key`, in place of an earlier value if there is one.
    pub fn set(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        let (key, value) = (key.into(), value.into());
        if let Some(&at) = self.index.get(&key) {
            self.entries[at].1 = value;
        } else {
            self.index.insert(key.clone(), self.entries.len());
            self.entries.push((key, value));
        }
    }

    /// Gives a key another name, unless that is taken.
    pub(crate) fn rename_key(&mut self, key: &str, to: String) {
        if key == to || self.index.contains_key(&to) {
            return;
        }
        if let Some(at) = self.index.remove(key) {
            self.entries[at].0.clone_from(&to);
            self.index.insert(to, at);
        }
    }

    /// Returns an array to be changed.
    pub(crate) fn array_mut(&mut self, key: &str) -> Option<&mut Array> {
        let at = *self.index.get(key)?;
        match &mut self.entries[at].1 {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns the value of `key`.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.index.get(key).map(|&at| &self.entries[at].1)
    }

    /// Returns keys and values in file order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.entries
            .iter()
            .map(|(key, value)| (key.as_str(), value))
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Tells whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns an integer of any width that is not negative.
    pub fn u64(&self, key: &str) -> Option<u64> {
        self.get(key)?
            .integer()
            .and_then(|value| value.try_into().ok())
    }

    /// Returns an integer of any width that fits.
    pub fn u32(&self, key: &str) -> Option<u32> {
        self.get(key)?
            .integer()
            .and_then(|value| value.try_into().ok())
    }

    /// Returns an integer of any width that fits.
    pub fn usize(&self, key: &str) -> Option<usize> {
        self.get(key)?
            .integer()
            .and_then(|value| value.try_into().ok())
    }

    /// Returns a number with a fraction.
    pub fn f64(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Value::F32(value) => Some(f64::from(*value)),
            Value::F64(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a number with a fraction.
    pub fn f32(&self, key: &str) -> Option<f32> {
        self.f64(key).map(|value| value as f32)
    }

    /// Returns a truth value.
    pub fn bool(&self, key: &str) -> Option<bool> {
        match self.get(key)? {
            Value::Bool(value) => Some(*value),
            _ => None,
        }
    }

    /// Returns a text.
    pub fn str(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Value::String(value) => Some(value),
            _ => None,
        }
    }

    /// Returns an array of any type.
    pub fn array(&self, key: &str) -> Option<&Array> {
        match self.get(key)? {
            Value::Array(array) => Some(array),
            _ => None,
        }
    }

    /// Returns an array of byte strings.
    pub fn strings(&self, key: &str) -> Option<&StringArray> {
        match self.array(key)? {
            Array::Strings(strings) => Some(strings),
            _ => None,
        }
    }

    /// Returns an array of numbers with a fraction.
    pub fn f32s(&self, key: &str) -> Option<Vec<f32>> {
        match self.array(key)? {
            Array::F32(values) => Some(values.clone()),
            Array::F64(values) => Some(values.iter().map(|value| *value as f32).collect()),
            _ => None,
        }
    }

    /// Returns an array of integers of any width; none of them may be beyond the range of i64.
    pub fn i64s(&self, key: &str) -> Option<Vec<i64>> {
        fn widen<T: Copy + Into<i64>>(values: &[T]) -> Vec<i64> {
            values.iter().map(|value| (*value).into()).collect()
        }
        match self.array(key)? {
            Array::U8(values) => Some(widen(values)),
            Array::I8(values) => Some(widen(values)),
            Array::U16(values) => Some(widen(values)),
            Array::I16(values) => Some(widen(values)),
            Array::U32(values) => Some(widen(values)),
            Array::I32(values) => Some(widen(values)),
            Array::I64(values) => Some(values.clone()),
            Array::U64(values) => values
                .iter()
                .map(|value| (*value).try_into().ok())
                .collect(),
            _ => None,
        }
    }

    /// Returns an array of truth values.
    pub fn bools(&self, key: &str) -> Option<Vec<bool>> {
        match self.array(key)? {
            Array::Bool(values) => Some(values.clone()),
            _ => None,
        }
    }

    /// Returns the name of the model family.
    pub fn architecture(&self) -> Option<&str> {
        self.str("general.architecture")
    }
}

impl Value {
    /// Returns the value as an integer if it is of an integer type.
    pub fn integer(&self) -> Option<i128> {
        match self {
            Value::U8(value) => Some((*value).into()),
            Value::I8(value) => Some((*value).into()),
            Value::U16(value) => Some((*value).into()),
            Value::I16(value) => Some((*value).into()),
            Value::U32(value) => Some((*value).into()),
            Value::I32(value) => Some((*value).into()),
            Value::U64(value) => Some((*value).into()),
            Value::I64(value) => Some((*value).into()),
            _ => None,
        }
    }
}

impl Array {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Array::U8(values) => values.len(),
            Array::I8(values) => values.len(),
            Array::U16(values) => values.len(),
            Array::I16(values) => values.len(),
            Array::U32(values) => values.len(),
            Array::I32(values) => values.len(),
            Array::F32(values) => values.len(),
            Array::Bool(values) => values.len(),
            Array::Strings(values) => values.len(),
            Array::Nested(values) => values.len(),
            Array::U64(values) => values.len(),
            Array::I64(values) => values.len(),
            Array::F64(values) => values.len(),
        }
    }

    /// Tells whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl StringArray {
    /// Returns no strings at all.
    pub fn new() -> StringArray {
        StringArray::default()
    }

    /// Adds a string at the end.
    pub fn push(&mut self, string: &[u8]) {
        self.bytes.extend_from_slice(string);
        self.ends.push(self.bytes.len());
    }

    /// Keeps the first strings.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.ends.truncate(len);
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
    }

    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Tells whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Returns string `index`.
    pub fn get(&self, index: usize) -> Option<&[u8]> {
        let end = *self.ends.get(index)?;
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        Some(&self.bytes[start..end])
    }

    /// Returns all strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }
}

impl<S: AsRef<[u8]>> FromIterator<S> for StringArray {
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> StringArray {
        let mut array = StringArray::new();
        for string in strings {
            array.push(string.as_ref());
        }
        array
    }
}

macro_rules! values_from {
    ($($type:ty => $variant:ident),* $(,)?) => {$(
        impl From<$type> for Value {
            fn from(value: $type) -> Value {
                Value::$variant(value)
            }
        }
        impl From<Vec<$type>> for Value {
            fn from(values: Vec<$type>) -> Value {
                Value::Array(Array::$variant(values))
            }
        }
    )*};
}
values_from!(
    u8 => U8, i8 => I8, u16 => U16, i16 => I16, u32 => U32, i32 => I32, f32 => F32, bool => Bool,
    u64 => U64, i64 => I64, f64 => F64,
);

impl From<&str> for Value {
    fn from(value: &str) -> Value {
        Value::String(value.to_owned())
    }
}

impl From<String> for Value {
    fn from(value: String) -> Value {
        Value::String(value)
    }
}

impl From<Array> for Value {
    fn from(value: Array) -> Value {
        Value::Array(value)
    }
}

impl From<StringArray> for Value {
    fn from(value: StringArray) -> Value {
        Value::Array(Array::Strings(value))
    }
}

impl From<Vec<String>> for Value {
    fn from(values: Vec<String>) -> Value {
        values.iter().collect::<StringArray>().into()
    }
}

impl From<Vec<&str>> for Value {
    fn from(values: Vec<&str>) -> Value {
        values.iter().collect::<StringArray>().into()
    }
}

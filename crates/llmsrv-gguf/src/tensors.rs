//! Element types and descriptions of tensors.

macro_rules! tensor_types {
    ($($variant:ident = $id:literal, $len:literal, $bytes:literal;)*) => {
        /// Type of the elements of a tensor. Most types store a block of elements together.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[expect(non_camel_case_types, missing_docs, reason = "the names of the format")]
        #[non_exhaustive]
        pub enum TensorType {
            $($variant,)*
            /// A number that this list lacks: the tensor is known by name and place, not by content.
            Unknown(u32),
        }

        impl TensorType {
            /// All types with a name.
            pub const ALL: &[TensorType] = &[$(TensorType::$variant),*];

            /// Returns the type with this number in a file.
            pub fn from_id(id: u32) -> TensorType {
                match id { $($id => TensorType::$variant,)* id => TensorType::Unknown(id) }
            }

            /// Returns the number of the type in a file.
            pub fn id(self) -> u32 {
                match self { $(TensorType::$variant => $id,)* TensorType::Unknown(id) => id }
            }

            /// Returns the name as users know it, for example `Q4_K`.
            pub fn name(self) -> &'static str {
                match self {
                    $(TensorType::$variant => stringify!($variant),)*
                    TensorType::Unknown(_) => "unknown",
                }
            }

            /// Returns the number of elements in a block.
            pub fn block_len(self) -> usize {
                match self { $(TensorType::$variant => $len,)* TensorType::Unknown(_) => 1 }
            }

            /// Returns the number of bytes of a block; 0 if nobody knows.
            pub fn block_bytes(self) -> usize {
                match self { $(TensorType::$variant => $bytes,)* TensorType::Unknown(_) => 0 }
            }
        }
    };
}

// Numbers, elements in a block and bytes of a block as in ggml's list of types.
tensor_types! {
    F32 = 0, 1, 4;
    F16 = 1, 1, 2;
    Q4_0 = 2, 32, 18;
    Q4_1 = 3, 32, 20;
    Q5_0 = 6, 32, 22;
    Q5_1 = 7, 32, 24;
    Q8_0 = 8, 32, 34;
    Q8_1 = 9, 32, 36;
    Q2_K = 10, 256, 84;
    Q3_K = 11, 256, 110;
    Q4_K = 12, 256, 144;
    Q5_K = 13, 256, 176;
    Q6_K = 14, 256, 210;
    Q8_K = 15, 256, 292;
    IQ2_XXS = 16, 256, 66;
    IQ2_XS = 17, 256, 74;
    IQ3_XXS = 18, 256, 98;
    IQ1_S = 19, 256, 50;
    IQ4_NL = 20, 32, 18;
    IQ3_S = 21, 256, 110;
    IQ2_S = 22, 256, 82;
    IQ4_XS = 23, 256, 136;
    I8 = 24, 1, 1;
    I16 = 25, 1, 2;
    I32 = 26, 1, 4;
    I64 = 27, 1, 8;
    F64 = 28, 1, 8;
    IQ1_M = 29, 256, 56;
    BF16 = 30, 1, 2;
    TQ1_0 = 34, 256, 54;
    TQ2_0 = 35, 256, 66;
    MXFP4 = 39, 32, 17;
    NVFP4 = 40, 64, 36;
    Q1_0 = 41, 128, 18;
    Q2_0 = 42, 64, 18;
}

impl TensorType {
    /// Returns the bytes of `n_elements` elements; `None` if they do not fill whole blocks, the
    /// number is beyond all bounds, or the type is unknown.
    pub fn bytes_for(self, n_elements: u64) -> Option<u64> {
        let len = self.block_len() as u64;
        (n_elements.is_multiple_of(len) && !matches!(self, TensorType::Unknown(_)))
            .then(|| (n_elements / len).checked_mul(self.block_bytes() as u64))?
    }

    /// Returns the bytes that a block takes in memory, packed for the CPU's products. Indices of codebooks
    /// become the values that they stand for, which are longer, and so do digits in base 3; other types take
    /// what they do in the file.
    pub fn resident_block_bytes(self) -> usize {
        match self {
            TensorType::IQ1_S => 70,
            TensorType::IQ2_XXS => 102,
            TensorType::IQ1_M | TensorType::IQ2_XS | TensorType::IQ2_S => 106,
            TensorType::IQ3_XXS | TensorType::IQ3_S => 134,
            TensorType::TQ1_0 => 66,
            // Its exponent becomes a number of 16 bits.
            TensorType::MXFP4 => 18,
            as_in_file => as_in_file.block_bytes(),
        }
    }
}

impl std::fmt::Display for TensorType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TensorType::Unknown(I2_S) => f.write_str("I2_S, which is of bitnet.cpp alone"),
            TensorType::Unknown(id) => write!(f, "number {id}, which is not known"),
            known => f.write_str(known.name()),
        }
    }
}

/// The number by which files of bitnet.cpp call -1, 0 and 1 in two bits each.
const I2_S: u32 = 36;

/// Where a tensor lies and what it looks like. Checked against the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Name, for example `blk.0.attn_q.weight`.
    pub name: String,
    /// One to four sizes; the first is the length of a row (elements that lie side by side).
    pub shape: Vec<u64>,
    /// Type of the elements.
    pub dtype: TensorType,
    /// First byte, counted from the start of the file.
    pub offset: u64,
    /// Size in bytes; of a tensor of unknown type, what lies between it and the next.
    pub bytes: u64,
}

impl TensorInfo {
    /// Returns the number of elements.
    pub fn n_elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Returns the bytes that it takes in memory as a matrix, packed: see
    /// [`TensorType::resident_block_bytes`].
    pub fn resident_bytes(&self) -> u64 {
        match self.dtype.block_bytes() as u64 {
            0 => self.bytes,
            file_bytes => {
                (self.bytes / file_bytes).saturating_mul(self.dtype.resident_block_bytes() as u64)
            }
        }
    }

    /// Returns the number of elements in a row.
    pub fn row_len(&self) -> u64 {
        self.shape.first().copied().unwrap_or(0)
    }

    /// Returns the number of rows.
    pub fn n_rows(&self) -> u64 {
        self.shape.iter().skip(1).product()
    }
}

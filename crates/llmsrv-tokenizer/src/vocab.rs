//! The plain data of a tokenizer, as a GGUF file states it.

/// How text becomes tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Byte pairs merged by rank, inside words cut by a pre-tokenizer (`gpt2`).
    #[default]
    Bpe,
    /// Pairs merged by the score of the result, with byte fallback (`llama`).
    Spm,
    /// The segmentation of the highest total score (`t5`).
    Unigram,
    /// The longest match from the left inside words (`bert`).
    WordPiece,
}

/// What a token is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    #[default]
    Normal,
    /// Stands for text that no other token can spell.
    Unknown,
    /// Steers the model, has no text in the output.
    Control,
    /// Text that is one token wherever it occurs.
    UserDefined,
    /// Never used.
    Unused,
    /// One byte, spelled `<0x00>` to `<0xFF>`.
    Byte,
}

/// The tokens around parts of a file in fill-in-the-middle prompts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FimTokens {
    /// Before the text ahead of the hole.
    pub prefix: Option<u32>,
    /// Before the text behind the hole.
    pub suffix: Option<u32>,
    /// Where the text of the hole begins.
    pub middle: Option<u32>,
    /// Fills up a row.
    pub pad: Option<u32>,
    /// Before the name of a repository.
    pub repository: Option<u32>,
    /// Between files.
    pub separator: Option<u32>,
}

/// Everything a [`Tokenizer`](crate::Tokenizer) is made from.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Vocab {
    /// How text becomes tokens.
    pub algorithm: Algorithm,
    /// Spelling of each token, in the alphabet of the algorithm; the id is the position.
    pub tokens: Vec<String>,
    /// Score of each token, or empty: all 0.
    pub scores: Vec<f32>,
    /// Kind of each token, or empty: all normal.
    pub kinds: Vec<TokenKind>,
    /// `left right` pairs of byte-level BPE, the one to merge first in front.
    pub merges: Vec<String>,
    /// Name of the pre-tokenizer (`tokenizer.ggml.pre`); empty = default.
    pub pre: String,
    /// Begin of a text.
    pub bos: Option<u32>,
    /// End of a text.
    pub eos: Option<u32>,
    /// End of a turn.
    pub eot: Option<u32>,
    /// End of a message that expects a tool's answer.
    pub eom: Option<u32>,
    /// Stands for text without a token.
    pub unknown: Option<u32>,
    /// Between two texts.
    pub separator: Option<u32>,
    /// Fills up a row.
    pub pad: Option<u32>,
    /// Hides a word.
    pub mask: Option<u32>,
    /// More tokens that end a generation.
    pub ends: Vec<u32>,
    /// Tokens of fill-in-the-middle prompts.
    pub fim: FimTokens,
    /// Special tokens that swallow the white space before them.
    pub strip_left: Vec<u32>,
    /// Special tokens that swallow the white space after them.
    pub strip_right: Vec<u32>,
    /// A text begins with `bos`.
    pub add_bos: bool,
    /// A text ends with `eos`.
    pub add_eos: bool,
    /// SPM and unigram: a text begins with a space that it does not have.
    pub add_space_prefix: bool,
    /// Unigram: runs of spaces are one space, none at the ends.
    pub remove_extra_whitespaces: bool,
    /// WordPiece: text is lower-cased.
    pub lowercase: bool,
    /// WordPiece: accents are removed.
    pub strip_accents: bool,
    /// Unigram: the normalisation table of SentencePiece, or empty.
    pub charsmap: Vec<u8>,
}

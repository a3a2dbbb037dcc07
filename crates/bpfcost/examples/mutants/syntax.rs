//! Finds where BPF C can be made wrong, in its tokens: statements that can be left out, initial values, conditions and
//! their bounds, constants. What does not compile is caught by the compiler, so tokens are enough.

use std::ops::Range;

/// A way to make a source wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mutation {
    /// The text that is replaced, in bytes.
    pub at: Range<usize>,
    /// The replacement.
    pub new: String,
    /// True if it is in the definition of a map, which is not code.
    pub of_map: bool,
}

#[derive(Clone, Copy, Debug)]
struct Token<'a> {
    text: &'a str,
    at: usize,
}

impl Token<'_> {
    fn is_number(&self) -> bool {
        self.text.starts_with(|c: char| c.is_ascii_digit())
    }

    fn is_word(&self) -> bool {
        self.text
            .starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
    }
}

/// First words of declarations.
const TYPES: [&str; 22] = [
    "static", "const", "volatile", "struct", "enum", "union", "unsigned", "signed", "void", "char",
    "short", "int", "long", "_Bool", "bool", "__u8", "__u16", "__u32", "__u64", "__s32", "__s64",
    "extern",
];

const OPERATORS: [&str; 22] = [
    "<<=", ">>=", "...", "->", "++", "--", "<<", ">>", "<=", ">=", "==", "!=", "&&", "||", "+=",
    "-=", "*=", "/=", "|=", "&=", "^=", "##",
];

/// Every mutation of a source, in the order of its text.
pub(crate) fn mutations(source: &str) -> Vec<Mutation> {
    let mut all = Vec::new();
    for tokens in regions(source) {
        let mut scan = Scan {
            source,
            tokens,
            found: Vec::new(),
            fixed: Vec::new(),
            conditions: Vec::new(),
        };
        scan.file();
        scan.expressions();
        all.append(&mut scan.found);
    }
    all.sort_by(|a, b| (a.at.start, a.at.end, &a.new).cmp(&(b.at.start, b.at.end, &b.new)));
    all.dedup();
    all
}

/// The tokens of the code, and those of each macro's body.
fn regions(source: &str) -> Vec<Vec<Token<'_>>> {
    let mut regions = vec![Vec::new()];
    let mut at = 0;
    let mut line_begins = true;
    while at < source.len() {
        let rest = &source[at..];
        let first = rest.chars().next().unwrap_or(' ');
        if first.is_whitespace() {
            line_begins |= first == '\n';
            at += first.len_utf8();
        } else if rest.starts_with("/*") {
            at += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else if rest.starts_with("//") {
            at += rest.find('\n').unwrap_or(rest.len());
        } else if first == '#' && line_begins {
            let length = logical_line(rest);
            regions.extend(macro_body(&rest[..length], at));
            at += length;
        } else {
            let token = token(source, at);
            line_begins = false;
            at += token.text.len();
            regions[0].push(token);
        }
    }
    regions
}

/// The length of a line with those that continue it.
fn logical_line(text: &str) -> usize {
    let mut length = 0;
    for line in text.split_inclusive('\n') {
        length += line.len();
        if !line.trim_end().ends_with('\\') {
            break;
        }
    }
    length
}

fn macro_body(line: &str, at: usize) -> Option<Vec<Token<'_>>> {
    let after = line.strip_prefix("#define")?;
    let start = line.len() - after.trim_start().len();
    let name = token(line, start);
    let mut from = start + name.text.len();
    // Parameters follow the name at once.
    if line[from..].starts_with('(') {
        from += line[from..].find(')')? + 1;
    }
    let mut tokens = Vec::new();
    while from < line.len() {
        let rest = &line[from..];
        let first = rest.chars().next()?;
        if first.is_whitespace() || first == '\\' {
            from += 1;
        } else if rest.starts_with("/*") {
            from += rest.find("*/").map_or(rest.len(), |end| end + 2);
        } else {
            let one = token(line, from);
            from += one.text.len();
            tokens.push(Token {
                at: at + one.at,
                ..one
            });
        }
    }
    Some(tokens)
}

fn token(source: &str, at: usize) -> Token<'_> {
    let rest = &source[at..];
    let first = rest.as_bytes()[0];
    let length = if first == b'"' || first == b'\'' {
        let mut escaped = false;
        let end = rest.bytes().skip(1).position(|byte| {
            let ends = byte == first && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        end.map_or(rest.len(), |end| end + 2)
    } else if first.is_ascii_alphanumeric() || first == b'_' {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        rest.bytes()
            .position(|byte| !word(byte))
            .unwrap_or(rest.len())
    } else {
        let operator = OPERATORS.iter().find(|one| rest.starts_with(**one));
        operator.map_or_else(
            || rest.chars().next().map_or(1, char::len_utf8),
            |one| one.len(),
        )
    };
    Token {
        text: &rest[..length],
        at,
    }
}

struct Scan<'a> {
    source: &'a str,
    tokens: Vec<Token<'a>>,
    found: Vec<Mutation>,
    /// Tokens whose constants and operators stay: types, assembly, attributes.
    fixed: Vec<Range<usize>>,
    /// Tokens of conditions, whose operands are negated one by one.
    conditions: Vec<Range<usize>>,
}

impl Scan<'_> {
    fn text(&self, index: usize) -> &str {
        self.tokens.get(index).map_or("", |token| token.text)
    }

    fn bytes(&self, tokens: Range<usize>) -> Range<usize> {
        let last = self.tokens[tokens.end - 1];
        self.tokens[tokens.start].at..last.at + last.text.len()
    }

    fn mutate(&mut self, tokens: Range<usize>, new: String, of_map: bool) {
        let at = self.bytes(tokens);
        self.found.push(Mutation { at, new, of_map });
    }

    /// Behind the bracket that closes the one at `open`.
    fn closed(&self, open: usize) -> usize {
        let mut depth = 0;
        for index in open..self.tokens.len() {
            match self.text(index) {
                "(" | "[" | "{" => depth += 1,
                ")" | "]" | "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index + 1;
            }
        }
        self.tokens.len()
    }

    /// The first of these in a range, outside of brackets that open in it; else its end.
    fn next(&self, tokens: Range<usize>, wanted: &[&str]) -> usize {
        let mut index = tokens.start;
        while index < tokens.end {
            let text = self.text(index);
            if wanted.contains(&text) {
                return index;
            }
            index = match text {
                "(" | "[" | "{" => self.closed(index),
                _ => index + 1,
            };
        }
        tokens.end
    }

    /// Definitions: of functions, types, maps.
    fn file(&mut self) {
        let mut index = 0;
        while index < self.tokens.len() {
            let brace =
                index + 1 + usize::from(self.tokens.get(index + 1).is_some_and(Token::is_word));
            index = match self.text(index) {
                "struct" | "union" | "enum" if self.text(brace) == "{" => {
                    self.members(brace);
                    self.closed(brace)
                }
                "__attribute__" | "aligned" => {
                    let end = self.closed(index + 1);
                    self.fixed.push(index..end);
                    end
                }
                "{" if index > 0 && matches!(self.text(index - 1), ")" | "(") => {
                    self.statement(index)
                }
                _ => index + 1,
            };
        }
    }

    /// Each line of a map's definition can be left out. A type stays: user space is compiled with it.
    fn members(&mut self, brace: usize) {
        let end = self.closed(brace);
        let definition = ["__uint", "__type", "__array"];
        if !(brace..end).any(|index| definition.contains(&self.text(index))) {
            return self.fixed.push(brace..end);
        }
        let mut index = brace + 1;
        while index < end - 1 {
            let semicolon = self.next(index..end - 1, &[";"]);
            self.mutate(index..(semicolon + 1).min(end - 1), String::new(), true);
            index = semicolon + 1;
        }
        self.fixed.push(brace..end);
    }

    /// A statement; returns what is behind it.
    fn statement(&mut self, index: usize) -> usize {
        match self.text(index) {
            "{" => {
                let end = self.closed(index) - 1;
                let mut inner = index + 1;
                while inner < end {
                    inner = self.statement(inner);
                }
                end + 1
            }
            "if" | "while" => {
                let end = self.closed(index + 1);
                self.condition(index + 2..end - 1);
                let end = self.statement(end);
                match (self.text(index), self.text(end)) {
                    ("if", "else") => self.statement(end + 1),
                    _ => end,
                }
            }
            "for" => {
                let end = self.closed(index + 1);
                let first = self.next(index + 2..end - 1, &[";"]);
                let second = self.next(first + 1..end - 1, &[";"]);
                self.condition(first + 1..second);
                if second + 1 < end - 1 {
                    self.mutate(second + 1..end - 1, String::new(), false);
                }
                self.statement(end)
            }
            _ if self.text(index + 1) == ":" => index + 2,
            "" | ";" => index + 1,
            first => {
                let (declares, assembly) = (TYPES.contains(&first), first == "asm");
                let end = self.next(index..self.tokens.len(), &[";"]);
                if declares {
                    self.initial_values(index..end);
                } else {
                    self.mutate(index..(end + 1).min(self.tokens.len()), ";".into(), false);
                }
                if assembly {
                    self.fixed.push(index..end);
                }
                end + 1
            }
        }
    }

    /// Each initial value becomes zero.
    fn initial_values(&mut self, tokens: Range<usize>) {
        let mut index = tokens.start;
        while index < tokens.end {
            let equals = self.next(index..tokens.end, &["="]);
            let end = self.next(equals..tokens.end, &[","]);
            let value = equals + 1..end;
            let zero = ["0", "{}"].contains(&self.source_of(value.clone()));
            if !value.is_empty() && !zero {
                self.mutate(value, "{}".into(), false);
            }
            index = end + 1;
        }
    }

    fn source_of(&self, tokens: Range<usize>) -> &str {
        if tokens.is_empty() {
            return "";
        }
        &self.source[self.bytes(tokens)]
    }

    /// Each operand of a condition is negated.
    fn condition(&mut self, tokens: Range<usize>) {
        let mut index = tokens.start;
        self.conditions.push(tokens.clone());
        while index < tokens.end {
            let end = self.next(index..tokens.end, &["&&", "||"]);
            let new = format!("!({})", self.source_of(index..end));
            self.mutate(index..end, new, false);
            index = end + 1;
        }
    }

    /// Conditions of `?`, bounds, and constants, wherever they are.
    fn expressions(&mut self) {
        let free =
            |scan: &Self, index: usize| !scan.fixed.iter().any(|range| range.contains(&index));
        let free: Vec<usize> = (0..self.tokens.len())
            .filter(|&index| free(self, index))
            .collect();
        for &index in &free {
            if self.text(index) == "?" {
                let start = self.operand_before(index);
                self.condition(start..index);
            }
        }
        for index in free {
            let in_condition = self.conditions.iter().any(|range| range.contains(&index));
            let new = match self.text(index) {
                "<" => "<=".to_owned(),
                "<=" => "<".to_owned(),
                ">" => ">=".to_owned(),
                ">=" => ">".to_owned(),
                "==" if !in_condition => "!=".to_owned(),
                "!=" if !in_condition => "==".to_owned(),
                "&&" if !in_condition => "||".to_owned(),
                "||" if !in_condition => "&&".to_owned(),
                text if self.tokens[index].is_number() => format!("({text} + 1)"),
                _ => continue,
            };
            self.mutate(index..index + 1, new, false);
        }
    }

    /// First token of the operand that ends before a token.
    fn operand_before(&self, index: usize) -> usize {
        let (mut start, mut depth) = (index, 0);
        while start > 0 {
            match self.text(start - 1) {
                ")" | "]" | "}" => depth += 1,
                "(" | "[" | "{" if depth == 0 => break,
                "(" | "[" | "{" => depth -= 1,
                "," | "=" | "return" | ";" | "?" | ":" if depth == 0 => break,
                _ => {}
            }
            start -= 1;
        }
        start
    }
}

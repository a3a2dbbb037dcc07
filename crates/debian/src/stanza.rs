//! Stanzas of fields, as Debian's control files have them: `Field: value`, and lines that go on begin with a space.

/// A field: its name, and its lines without the spaces around them.
pub(crate) struct Field<'a> {
    name: &'a str,
    lines: Vec<&'a str>,
}

/// Fields up to an empty line.
#[derive(Default)]
pub(crate) struct Stanza<'a> {
    fields: Vec<Field<'a>>,
}

impl<'a> Stanza<'a> {
    /// Reads the lines of one stanza. Comments and lines that are no field are left out.
    pub(crate) fn parse(lines: impl IntoIterator<Item = &'a str>) -> Self {
        let mut fields: Vec<Field<'a>> = Vec::new();
        for line in lines {
            if line.starts_with('#') {
                continue;
            }
            if line.starts_with([' ', '\t']) {
                if let Some(field) = fields.last_mut() {
                    field.lines.push(line.trim());
                }
            } else if let Some((name, value)) = line.split_once(':') {
                fields.push(Field {
                    name,
                    lines: vec![value.trim()],
                });
            }
        }
        Stanza { fields }
    }

    /// The lines of a field; none where there is no such field.
    pub(crate) fn lines(&self, name: &str) -> &[&'a str] {
        let found = self
            .fields
            .iter()
            .find(|field| field.name.eq_ignore_ascii_case(name));
        found.map_or(&[], |field| &field.lines)
    }

    /// The first line of a field.
    pub(crate) fn value(&self, name: &str) -> Option<&'a str> {
        self.lines(name).first().copied()
    }

    /// The words of a field.
    pub(crate) fn words(&self, name: &str) -> impl Iterator<Item = &'a str> {
        self.lines(name)
            .iter()
            .flat_map(|line| line.split_ascii_whitespace())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_go_on_in_lines_that_begin_with_a_space() {
        let text = "A: one\n two three\n# comment\nb:\n\tfour\nno field\nA: second";
        let stanza = Stanza::parse(text.lines());
        assert_eq!(stanza.lines("a"), ["one", "two three"]);
        assert_eq!(stanza.words("B").collect::<Vec<_>>(), ["four"]);
        assert_eq!(stanza.value("A"), Some("one"));
        assert_eq!(stanza.value("C"), None);
    }
}

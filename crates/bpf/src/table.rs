//! Enums that are tables: behind each variant stands what is known of it, once.

/// An enum whose variants have a name and more. `ALL` has them in the order in which they are written.
macro_rules! table {
    (
        $(#[$about:meta])*
        $visible:vis enum $table:ident: $known:ty {
            $($(#[$doc:meta])* $variant:ident = $row:expr;)+
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visible enum $table {
            $($(#[$doc])* $variant,)+
        }

        impl $table {
            /// All of them, in the order of lists and tables.
            #[allow(dead_code, reason = "not every table is listed")]
            $visible const ALL: [$table; [$($table::$variant),+].len()] = [$($table::$variant),+];

            /// As people know it, and as cases are named.
            $visible fn name(self) -> &'static str {
                self.known().name
            }

            fn known(self) -> $known {
                match self {
                    $($table::$variant => $row,)+
                }
            }
        }

        impl std::fmt::Display for $table {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

pub(crate) use table;

//! Bytes of maps and records by the types that an object's BTF gives them.

mod data_type;
pub(crate) mod object_types;
mod value;

pub use data_type::DataType;
pub use object_types::ObjectTypes;
pub use value::Value;

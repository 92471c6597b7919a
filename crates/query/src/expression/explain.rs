//! Expressions as explain prints them: constants under `$const`, operands as they were understood.

use kilim_bson::{Array, Document, Value, doc};

use super::{Arguments, Call, Expression};

impl Expression {
    pub fn to_value(&self) -> Value {
        match self {
            Expression::Constant(value) => Value::Document(doc! {"$const": value.clone()}),
            Expression::Missing => Value::String("$$REMOVE".to_owned()),
            Expression::Field(path) => Value::String(format!("${}", path.as_str())),
            Expression::Variable(variable) => Value::String(match &variable.path {
                Some(path) if &*variable.name == "CURRENT" => format!("${}", path.as_str()),
                None => format!("$${}", variable.name),
                Some(path) => format!("$${}.{}", variable.name, path.as_str()),
            }),
            Expression::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| (&**name, value.to_value()));
                Value::Document(fields.collect::<Document>())
            }
            Expression::Array(elements) => {
                Value::Array(elements.iter().map(Expression::to_value).collect::<Array>())
            }
            Expression::Call(call) => {
                Value::Document([(call.operator.name, call.operand())].into_iter().collect())
            }
        }
    }
}

impl Call {
    fn operand(&self) -> Value {
        if let Some(show) = self.operator.show {
            return show(self);
        }
        let Arguments::Named(named) = self.operator.arguments else {
            return Value::Array(
                self.arguments.iter().flatten().map(Expression::to_value).collect::<Array>(),
            );
        };
        let names = named.parameters.iter().map(|parameter| parameter.name);
        let given = names.zip(&self.arguments);
        let shown = given.filter_map(|(name, argument)| Some((name, argument.as_ref()?.to_value())));
        Value::Document(shown.collect::<Document>())
    }
}

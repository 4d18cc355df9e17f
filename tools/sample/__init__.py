"""How the bundled sample model was made: data, model, training, measurement, golden check."""

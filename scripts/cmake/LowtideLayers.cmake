# Placeholder until the layer check lands.

"""The scan's judgement inside other people's pipelines: ``datasets``, torch, MindSpore."""

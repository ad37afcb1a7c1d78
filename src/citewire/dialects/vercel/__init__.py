"""Vercel's AI SDK: messages with source parts, and their stream."""

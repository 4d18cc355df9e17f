#!/usr/bin/env ruby
# frozen_string_literal: true

require "optparse"

Heading = Struct.new(:level, :title) do
  def anchor
    title.downcase.gsub(/[^\p{Alnum}\s-]/, "").strip.gsub(/\s+/, "-")
  end
end

def headings(lines)
  fenced = false
  lines.filter_map do |line|
    fenced = !fenced if line.start_with?("```")
    next if fenced

    match = line.match(/\A(\#{1,6})\s+(.+?)\s*\#*\s*\z/)
    Heading.new(match[1].length, match[2]) if match
  end
end

def contents(list, depth:)
  top = list.map(&:level).min || 1
  used = Hash.new(0)
  list.select { |h| h.level < top + depth }.map do |h|
    count = used[h.anchor]
    used[h.anchor] += 1
    link = count.zero? ? h.anchor : "#{h.anchor}-#{count}"
    "#{'  ' * (h.level - top)}- [#{h.title}](##{link})"
  end
end

options = { depth: 3 }
OptionParser.new do |parser|
  parser.banner = "Usage: markdown_toc.rb [options] FILE"
  parser.on("-d", "--depth N", Integer, "levels to show") { |n| options[:depth] = n }
end.parse!

puts contents(headings(ARGF.each_line), **options)

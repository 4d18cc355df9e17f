module Sexp (Sexp (..), parseSexp) where

import Control.Applicative
import Data.Char (isAlpha, isDigit, isSpace)

data Sexp
  = Symbol String
  | Number Integer
  | List [Sexp]
  deriving (Eq, Show)

newtype Parser a = Parser {runParser :: String -> Maybe (a, String)}

instance Functor Parser where
  fmap f (Parser p) = Parser $ \s -> do
    (a, rest) <- p s
    pure (f a, rest)

instance Applicative Parser where
  pure a = Parser $ \s -> Just (a, s)
  Parser pf <*> Parser pa = Parser $ \s -> do
    (f, rest) <- pf s
    (a, rest') <- pa rest
    pure (f a, rest')

instance Alternative Parser where
  empty = Parser (const Nothing)
  Parser p <|> Parser q = Parser $ \s -> p s <|> q s

satisfy :: (Char -> Bool) -> Parser Char
satisfy ok = Parser step
  where
    step (c : cs) | ok c = Just (c, cs)
    step _ = Nothing

lexeme :: Parser a -> Parser a
lexeme p = p <* many (satisfy isSpace)

value :: Parser Sexp
value =
  Number . read <$> lexeme (some (satisfy isDigit))
    <|> Symbol <$> lexeme (some (satisfy named))
    <|> List <$> (char '(' *> many value <* char ')')
  where
    named c = isAlpha c || c `elem` "+-*/<=>?!"
    char = lexeme . satisfy . (==)

-- | The whole input has to be one expression.
parseSexp :: String -> Maybe Sexp
parseSexp s = case runParser (many (satisfy isSpace) *> value) s of
  Just (result, "") -> Just result
  _ -> Nothing
